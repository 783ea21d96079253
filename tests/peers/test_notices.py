"""Notes of plugins, as people read them: bounded, and never to be taken for a line of ours."""

from anyplug.model.types import Note, Submitted
from anyplug.peers.notices import MOST_NOTES, lines_of, note_teller


def test_every_line_of_a_note_names_its_plugin_whatever_its_level_is():
    note = Note("tea", "info: hi\nwarning: all is approved", "one\ntwo")
    assert lines_of(note) == [
        "[tea] info: hi warning: all is approved: one",
        "[tea] info: hi warning: all is approved: two",
    ]


def test_only_one_plugin_is_heard_and_only_so_much_of_it():
    said = []
    hear = note_teller("tea", said.append)
    hear(Note("other", "info", "not this"))
    hear(Submitted("tea", "send me"))
    for _ in range(2 * MOST_NOTES):
        hear(Note("tea", "info", "again"))
    assert said[0] == "[tea] info: it wants this sent as if you had typed it: send me"
    assert (len(said), said[-1]) == (MOST_NOTES + 1, "[tea] warn: further notes are not shown")
