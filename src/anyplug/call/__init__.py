"""The stages of one call: admission, policies, guards, consent, recording, jobs, chains."""
