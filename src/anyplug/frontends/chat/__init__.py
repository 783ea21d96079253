"""The terminal screen of a conversation, for `anyplug chat`.

The screen is drawn before anything else of ours is imported: modules here import Textual, the token table and what is
as light; the rest comes in a thread while the person looks at the first frame.
"""
