# What our builtins share. Paths are compared without regard to case, as some file systems do.
package cupcake.helpers.anyplug

import rego.v1

readers := {
	"awk", "cat", "cmp", "diff", "echo", "egrep", "fgrep", "file", "find", "grep", "head", "hexdump", "less", "ls",
	"cd", "md5sum", "more", "od", "pwd", "rg", "sed", "sha256sum", "sort", "stat", "strings", "tail", "test", "tree", "true",
	"uniq", "wc", "zgrep", "[",
}

# Every file that the event names, where it really is.
files contains input.resolved_file_path

files contains file if some file in input.named_files

files contains edit.resolved_file_path if some edit in input.tool_input.edits

# A command that reads, and only that.
reads_only(command) if {
	command.name in readers
	count(command.writes) == 0
	not changes_files(command)
}

changes_files(command) if {
	command.name == "sed"
	some word in command.words
	regex.match(`^(-[a-zA-Z]*i|--in-place)`, word)
}

changes_files(command) if {
	command.name == "find"
	some word in command.words
	word in {"-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprintf", "-fls"}
}

changes_files(command) if {
	command.name in {"awk", "sort"}
	some word in command.words
	regex.match(`>|system\(|^-o|^--output|inplace`, word)
}

# Whether a path is what a pattern names: a name, a folder, or a pattern with *.
named(path, pattern) if {
	not contains(pattern, "*")
	startswith(pattern, "/")
	startswith(concat("", [lower(path), "/"]), concat("", [lower(trim_right(pattern, "/")), "/"]))
}

named(path, pattern) if {
	not contains(pattern, "*")
	not startswith(pattern, "/")
	bare := trim_right(trim_prefix(pattern, "./"), "/")
	contains(concat("", [lower(path), "/"]), concat("", ["/", lower(bare), "/"]))
}

named(path, pattern) if {
	contains(pattern, "*")
	glob.match(lower(pattern), null, lower(path))
}

named(path, pattern) if {
	contains(pattern, "*")
	not startswith(pattern, "/")
	glob.match(concat("", ["*/", lower(pattern)]), null, lower(path))
}

# Every place that a command's words may lead to, with variables, globs and `cd` in them read.
places(command) := array.concat(array.concat(command.paths, command.writes), command.targets)

# A command that removes or changes folders with all that is in them.
removes(command) if {
	some word in command.words
	regex.match(`(^|/)(rm|rmdir|mv|chmod|chown|chattr|chgrp|shred|trash|unlink|rsync)$`, word)
}

removes(command) if {
	command.name == "find"
	changes_files(command)
}

# Whether a folder is a place, or lies above it.
is_above(folder, place) if {
	outer := concat("", [lower(trim_right(folder, "/")), "/"])
	startswith(concat("", [lower(trim_right(place, "/")), "/"]), outer)
}

# Whether a part of a path has globs, or parts that are not known, and can be a name; `*` alone says nothing.
can_be(part, name) if {
	regex.match(`[*?]`, part)
	regex.match(`[^*?]`, part)
	hidden_alike(part, name)
	glob.match(lower(part), [], lower(name))
}

hidden_alike(part, name) if {
	startswith(part, ".")
	startswith(name, ".")
}

hidden_alike(part, name) if {
	not startswith(part, ".")
	not startswith(name, ".")
}

# Whether a command names it: by one of its places, or in one of its words.
mentions(command, pattern) if {
	some path in places(command)
	named(path, pattern)
}

mentions(command, pattern) if {
	bare := trim(trim_prefix(pattern, "./"), "/")
	not regex.match(`[*/]`, bare)
	some place in command.targets
	some part in split(place, "/")
	can_be(part, bare)
}

mentions(command, pattern) if {
	some word in command.words
	contains(lower(word), lower(trim_right(pattern, "/")))
}
