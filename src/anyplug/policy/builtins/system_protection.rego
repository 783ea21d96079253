# METADATA
# scope: package
# title: The system's own folders are left alone
# custom:
#   severity: CRITICAL
#   id: GLOBAL-BUILTIN-SYSTEM-PROTECTION
#   routing:
#     required_events: ["PreToolUse"]
package cupcake.policies.builtins.system_protection

import data.cupcake.helpers.anyplug as shared
import rego.v1

config := input.builtin_config.system_protection

folders := {
	"/bin/", "/boot/", "/dev/", "/etc/", "/lib/", "/lib64/", "/proc/", "/root/", "/sbin/", "/sys/", "/system/",
	"/usr/bin/", "/usr/sbin/", "/var/log/auth", "/var/log/secure", "/library/launchagents/",
	"/library/launchdaemons/", "/library/preferences/", "/private/etc/", "/private/var/", "c:\\windows\\",
	"c:\\program files", "c:\\programdata\\", "c:\\users\\all users\\", "c:\\bootmgr", "%systemroot%", "%windir%",
}

# Of the person's own folder, wherever that is.
personal := {"/.ssh/", "/.gnupg/", "/.local/share/keyrings/", "/library/launchagents/"}

named_personal := {"~/.ssh/", "~/.gnupg/", "~/.config/", "~/.local/share/keyrings/", "~/library/launchagents/"}

# A place of the system inside of a word, as scripts have it.
inside := `(^|[^a-z0-9_.~/-])(/(etc|usr/bin|usr/sbin|boot|lib|sys|system|proc|dev|private/etc|private/var)/|/library/launch|~/\.ssh/|c:\\windows\\|%systemroot%|%windir%)`

harmless := {"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/urandom"}

halt contains decision(concat("", [config.message, ": ", file])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name != "Bash"
	some file in shared.files
	of_the_system(file)
}

halt contains decision(concat("", [config.message, ": ", place])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name != "Bash"
	some key in ["file_path", "filePath", "path", "notebook_path", "pattern", "url"]
	place := input.tool_input[key]
	named_as_system(trim_prefix(place, "file://"))
}

halt contains decision(concat("", [config.message, ": ", edit.file_path])) if {
	input.hook_event_name == "PreToolUse"
	some edit in input.tool_input.edits
	named_as_system(edit.file_path)
}

halt contains decision(concat("", [config.message, ": ", word])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some word in command.words
	regex.match(inside, lower(word))
	not word in harmless
}

halt contains decision(concat("", [config.message, ": ", place])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some place in array.concat(command.paths, command.writes)
	of_the_system(place)
}

# Words that are no path by themselves, and lead there: after `cd`, in variables, as the value of an option.
halt contains decision(concat("", [config.message, ": ", place])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some place in command.targets
	not shared.is_above(input.cwd, place)
	of_the_system(place)
}

# Who removes a folder removes what lies in it.
halt contains decision(concat("", [config.message, ": ", place])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	shared.removes(command)
	some place in shared.places(command)
	some folder in folders
	shared.is_above(place, folder)
}

# Globs, and parts that are not known, can stand for a folder of the system.
halt contains decision(concat("", [config.message, ": ", place])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some place in command.targets
	parts := split(place, "/")
	some folder in folders
	names := split(trim_right(folder, "/"), "/")
	count(parts) >= count(names)
	shared.can_be(parts[count(names) - 1], names[count(names) - 1])
	array.slice(parts, 0, count(names) - 1) == array.slice(names, 0, count(names) - 1)
}

halt contains decision(concat("", [config.message, ": ", word])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	some word in command.words
	regex.match(`(^|/)(sudo|doas)$`, word)
}

halt contains decision(concat("", [config.message, ": ", command.name])) if {
	input.hook_event_name == "PreToolUse"
	input.tool_name == "Bash"
	some command in input.commands
	command.name in {"su", "runuser", "pkexec", "run0"}
}

of_the_system(path) if {
	some folder in folders
	startswith(concat("", [lower(path), "/"]), folder)
	not path in harmless
}

of_the_system(path) if {
	some folder in personal
	contains(concat("", [lower(path), "/"]), folder)
}

named_as_system(place) if of_the_system(place)

named_as_system(place) if {
	some start in named_personal
	startswith(lower(place), start)
}

of_the_system(path) if {
	some pattern in config.additional_paths
	shared.named(path, pattern)
}

decision(reason) := {"rule_id": "GLOBAL-BUILTIN-SYSTEM-PROTECTION", "reason": reason, "severity": "CRITICAL"}
