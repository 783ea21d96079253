"""Protected paths: files that the user's other programs later run or trust without asking. Data, and pure.

`hidden` paths can be neither read nor written; `read-only` ones cannot be created, changed, replaced or removed. Both
apply whether or not the path exists, to every grant that does not name the path itself.

A pattern is one or more names joined by `/`; a `*` at either end of a name matches anything. Names are compared
case-insensitively, except after a `=`. `anywhere` patterns apply in every folder below a grant, `project` patterns in
the folder in which the host runs, and `user` patterns in the user's home folder.
"""

import functools
from collections.abc import Iterable
from typing import Literal, NamedTuple

Effect = Literal["hidden", "read-only"]
Where = Literal["anywhere", "project", "user"]


class Entry(NamedTuple):
    """Patterns that are protected for the same reason."""

    effect: Effect
    where: Where
    patterns: tuple[str, ...]
    why: str


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


KEYRINGS = _words(".gnupg .password-store .local/share/keyrings .local/share/kwalletd .local/share/kwalletd6 .pki")
KEYS = (".ssh", *KEYRINGS)  # targets of symlinks in these are hidden, too

TABLE: tuple[Entry, ...] = (
    Entry("hidden", "user", _words(".ssh"), "keys, and commands that SSH runs (`ProxyCommand`, `authorized_keys`)"),
    Entry("hidden", "user", KEYRINGS, "keyrings and password stores"),
    Entry(
        "hidden",
        "user",
        _words(".mozilla .thunderbird .config/google-chrome .config/chromium .config/BraveSoftware "
               ".config/microsoft-edge .config/vivaldi .config/opera .librewolf snap/firefox snap/chromium "
               ".var/app/org.mozilla.firefox .var/app/com.google.Chrome .var/app/org.chromium.Chromium"),
        "browsers' and mail programs' passwords and sessions",
    ),
    Entry("read-only", "anywhere", _words(".cupcake"), "policies, whose signals run commands"),
    Entry(
        "read-only",
        "anywhere",
        _words(".git/hooks .git/config .git/config.worktree .git/commondir .git/gitdir .git/modules .git/worktrees"),
        "commands that git runs. At every depth in a folder called `.git`, except in its `refs` and `logs`, where "
        "files have the names of branches. A `.git` that is not a folder is refused too: it points git elsewhere",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words(".git/rebase-merge .git/rebase-apply .git/sequencer .git/BISECT_* .git/.dotest* .git/remotes "
               ".git/branches .git/branchless .git/sl"),
        "state that git, git-branchless and Sapling continue with later: commands (`exec`), options, other remotes",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words("=HEAD .git/logs/objects .git/refs/remotes/*/objects .git/logs/refs/remotes/*/objects"),
        "files that make a folder a bare repository. `HEAD` is free where git writes it: in `.git`, in its `logs`, "
        "and for remotes in its `refs` and `logs/refs`. In the last three, `objects`, `config`, `config.worktree`, "
        "`commondir`, `gitdir`, `hooks`, `modules` and `worktrees` are protected next to it, whether it exists or not",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words(".hg/hgrc .hg/hgrc-not-shared .hg/sharedpath .sl/config .sl/sharedpath"),
        "commands of Mercurial and Sapling",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words(".jj/repo/config.toml .jj/config.toml .jj/repo/store/git_target"),
        "commands of Jujutsu",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words("_darcs/prefs .pijul/config .bzr/branch/branch.conf CVS/Root"),
        "commands of Darcs, Pijul and Breezy, and the program by which CVS reaches its server",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words(".githooks .husky .pre-commit-config.y* lefthook.* .lefthook.* lefthook-local.* "
               ".lefthook-local.* .overcommit.yml .github/hooks .gitconfig prek.toml .git-templates"),
        "commands that run with the next commit, if git hooks are installed",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words(".envrc .env .env.local .direnv .devenv .autoenv* .rvmrc .tool-versions mise.* .mise.* .mise "
               ".rtx.toml .config/mise .config/mise.toml mise/config.toml .prototools .shadowenv.d"),
        "commands and programs that a shell runs or uses when it enters the folder (direnv, mise, asdf)",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words(".vscode .vscode-* .idea .fleet .zed .helix .theia .cursor .windsurf .devcontainer "
               ".devcontainer.json .goutputstream-* *.code-workspace .exrc .vimrc .vim .nvimrc .nvim .nvim.lua .lvimrc "
               ".local.vimrc .neoconf.json .dir-locals.el .dir-locals-2.el .lazy.lua .vs"),
        "tasks, tools and scripts that editors start",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words(".claude .claude.json .mcp.json mcp.json .codex .gemini .opencode opencode.json* .aider.conf.yml "
               ".continue .roo .cline .kilocode .kiro .amazonq .qwen .factory .goose .config/goose .crush .crush.json "
               "crush.json .junie .augment .trae .agents .copilot .pi .amp .warp .zot .anyplug .cyclopone "
               ".openhands .vibe .grok .codeium .antigravity .devin .codebuddy .qoder .lingma .rovodev .iflow .mcp "
               "mcp_config.json mcp_settings.json cline_mcp_settings.json claude_desktop_config.json"),
        "hooks, MCP servers and plugins that agents start",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words(".npmrc .yarnrc .yarnrc.yml .yarn/releases .yarn/plugins .pnpmfile.* bunfig.toml .cargo/config "
               ".cargo/config.toml .bundle/config pnpm-workspace.yaml rust-toolchain rust-toolchain.toml .mvn "
               ".corepack.env .bazelrc .bazeliskrc tools/bazel gradle/wrapper/gradle-wrapper.properties "
               ".sbtopts .jvmopts"),
        "settings that make package managers run another program (`script-shell`, `yarnPath`, `rustc-wrapper`)",
    ),
    Entry(
        "read-only",
        "anywhere",
        _words(".gdbinit .lldbinit .pdbrc .ghci .ocamlinit .irbrc .pryrc .Rprofile .Renviron .octaverc .iex.exs "
               ".erlang .byebugrc .rdbgrc .perldb ipython_config.py jupyter_config.py jupyter_server_config.py "
               "jupyter_notebook_config.py jupyter_lab_config.py .latexmkrc latexmkrc .ycm_extra_conf.py"),
        "scripts that debuggers and interpreters run when they start, in every folder",
    ),
    Entry("read-only", "project", _words("plugins data/tools"), "the project's plugins, which hosts search there"),
    Entry(
        "read-only",
        "user",
        _words(".config"),
        "settings: policies, autostart, systemd units, shells, editors, agents, git, desktops",
    ),
    Entry(
        "read-only",
        "user",
        _words(".bashrc .bashrc.d .bash_* .profile .zshrc .zshrc.d .zshenv .zprofile .zlogin .zlogout .zsh "
               ".zfunc .zinit .zplug .antigen .oh-my-* .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc "
               ".xonshrc .shrc .fzf* .pam_environment .local/share/bash-completion .local/share/zsh "
               ".local/share/fish .zcompdump* .zcompcache .p10k* .purepower .zim .zimrc .zprezto .zpreztorc .zgenom "
               ".zgen .znap .zpm .antidote .antibody .zsh_* .zshrc.* .local/share/zinit .local/share/sheldon "
               ".local/share/zap .local/share/antidote .local/share/znap .local/share/zimfw .local/share/zplug "
               ".local/share/powerlevel10k .local/share/atuin .cache/p10k* .cache/gitstatus .cache/zsh* .cache/prezto "
               ".cache/antidote .cache/antibody .cache/sheldon .cache/fish .cache/oh-my-zsh "
               ".basher .elvish"),
        "shell start-up files",
    ),
    Entry(
        "read-only",
        "user",
        _words(".xprofile .xinitrc .xsession .xsessionrc .xserverrc .xmonad .i3 .fluxbox .local/share/systemd "
               ".local/share/dbus-1 .local/share/applications .local/share/gnome-shell .local/share/plasma "
               ".local/share/kservices5 .local/share/kio .local/share/nautilus .local/share/flatpak .var/app "
               "snap .gnomerc .Xclients .Xsession .xsession-* .Xresources .Xdefaults* .xscreensaver .xmodmap "
               ".local/share/konsole .local/share/nemo .local/share/caja .local/share/Thunar .local/share/dolphin "
               ".local/share/kwin .local/share/plasmashell .local/share/kxmlgui5 .local/share/cinnamon "
               ".local/share/xsessions .local/share/wayland-sessions .gnome2 .kde .kde4 "
               ".icewm .openbox .dwm .local/share/ulauncher .local/share/rofi .sway .hypr .river .fvwm .fvwm2 .fvwm2rc "
               ".fvwmrc .jwmrc .jwm .awesome .bspwm .herbstluftwm .qtile .spectrwm.conf .cwmrc .twmrc .ctwmrc "
               ".mwmrc .wmii .wmii-hg .enlightenment .e .e16 .blackbox .blackboxrc .pekwm .sawfish .sawfishrc .musca "
               ".notion .ion3 .subtle .GNUstep .xmobarrc .polybar .dmrc .xinputrc .labwc "
               ".local/share/nautilus-python .local/share/nemo-python .local/share/caja-python "
               ".local/share/kservices6 .local/share/kxmlgui6 .local/share/kwin-* .local/share/xfce4 "
               ".local/share/lxqt .local/share/mate* .local/share/budgie* .local/share/gedit .local/share/cosmic "
               ".local/share/albert .local/share/krunner"),
        "programs that start with the desktop, or on a click",
    ),
    Entry(
        "read-only",
        "user",
        _words(".local/bin bin .local/lib .local/share/uv .local/share/pipx .local/pipx .cargo/bin .cargo/env* "
               ".rustup go/bin .nvm .volta .bun .deno .pyenv .rbenv .rvm .asdf .sdkman .local/share/mise "
               ".local/share/pnpm .nodenv .jenv .goenv .opam .ghcup .juliaup .pixi .conda miniconda3 anaconda3 "
               "miniforge3 mambaforge google-cloud-sdk .npm-global .nix-profile .local/share/nvim .gvimrc "
               ".emacs .emacs.d .ipython .jupyter .pythonrc* .cabal/bin .dotnet/tools .foundry/bin .krew/bin "
               ".composer/vendor/bin .luarocks/bin .rye/shims .proto/bin .linuxbrew/bin .fnm .local/state/nix "
               ".julia/config .ammonite .lein .sbt .cursor-server .rye .elan .atuin .gvm .phpbrew .phpenv .swiftly "
               ".swiftenv .swiftpm .local/share/cargo .local/share/rustup .local/share/swiftly .local/share/rtx "
               ".local/share/fnm .local/share/nvm .local/share/asdf .local/share/proto .local/share/pyenv "
               ".local/share/go/bin .local/share/virtualenvs .local/share/jupyter .virtualenvs .node_modules "
               ".node_libraries .tclshrc .wishrc .tkshrc .gitk .sbclrc .ccl-init.lisp .clisprc* .cmucl-init* .eclrc "
               ".guile .racketrc .mongoshrc.js .mongorc.js .mongosh .gnuplot .maxima .octave* "
               ".mpv .local/share/mpv .cache/nvim/luac .cache/pre-commit .cache/prek .cache/vim .local/state/nvim "
               ".local/share/vim .local/share/emacs .local/share/helix .local/share/zed .local/share/code-server "
               ".vscode-server* .cache/pypoetry/virtualenvs .local/share/pypoetry .local/share/hatch .nimble/bin "
               ".stack/bin .local/share/gem .gem/ruby .mix .kerl .kiex .tfenv .tgenv .jabba .jbang "
               ".perlbrew perl5/bin perl5/lib perl5/perlbrew .plenv .luaver .aqua "
               ".local/share/aquaproj-aqua .proto .arkade .cabal/config "
               ".ghc .stack/config.yaml .nodebrew .nodist .spack .guix-profile .local/share/coursier "
               ".doom.d .spacemacs .spacemacs.d .emacs.d.* .emacs-* .xemacs .pulsar .atom .SpaceVim.d .SpaceVim "
               ".vim_runtime .neovim .kakrc .kak .jed .jedrc .vile .vilerc .zile "
               ".sublime* .textadept .lite-xl .eclipse .netbeans .IntelliJIdea* "
               ".PyCharm* .WebStorm* .CLion* .GoLand* .PhpStorm* .RubyMine* .Rider* .DataGrip* .AndroidStudio* "
               ".ideavimrc .vsvimrc .local/share/JetBrains "
               ".local/share/geany .local/share/kate .local/share/kdevelop "
               ".local/share/lunarvim .local/share/lvim .local/share/kak .local/share/micro .local/share/qtcreator "
               ".local/share/vulkan .local/share/gstreamer-1.0 .local/share/gstreamer-0.10 "
               ".gstreamer-1.0 .gstreamer-0.10 .local/share/ladspa .ladspa .lv2 .vst .vst3 .clap .dssi .lxvst "
               ".asoundrc .asoundrc.* .pulse .local/share/pipewire .local/share/wireplumber "
               ".frei0r-1 .local/share/gtksourceview* .local/share/gjs .gimp-* .local/share/inkscape "
               ".local/share/blender .blender .local/share/FreeCAD .FreeCAD .local/share/krita .local/share/QGIS "
               ".openoffice.org .libreoffice .local/share/rhythmbox .local/share/vlc "
               ".local/share/Steam .steam .local/share/lutris .wine .local/share/PrismLauncher "
               ".xchat2 .hexchat .purple .local/share/weechat .local/share/irssi .local/share/dino "
               ".pip .pypirc .pydistutils.cfg .bpython .ptpython .local/share/ptpython "
               ".sage .R .juliarc.jl .julia/dev .local/share/nushell "
               ".local/share/powershell .local/share/xonsh .local/share/elvish"),
        "programs, and code that programs load when they start",
    ),
    Entry(
        "read-only",
        "user",
        _words(".hgrc .docker .kube .aws .azure .condarc .terraformrc .terraform.d .ansible.cfg .gradle/init* "
               ".tmux.conf .tmux .screenrc .wezterm.lua .psqlrc .sqliterc .curlrc .wgetrc .gemrc .direnvrc "
               ".bunfig.toml .gdbearlyinit .lldbinit-lldb .gradle/gradle.properties .m2/settings.xml "
               ".m2/extensions.xml .subversion/config .my.cnf .vnc .xbindkeysrc .fehbg .screenlayout .irssi "
               ".weechat .hyper.js .hammerspoon .local/share/thumbnailers .devscripts .quiltrc .mailcap "
               ".lessfilter .lesskey .less .nanorc .joerc .elinks .w3m "
               ".mplayer .ncmpcpp .newsboat .offlineimaprc .offlineimap.py .msmtprc .fetchmailrc "
               ".getmail .mbsyncrc .notmuch-config .mutt .taskrc .task/hooks .timewarrior "
               ".rpmmacros .pbuilderrc .sbuildrc .gbp.conf .dput.cf .reportbugrc .bazaar .cvsrc "
               ".ackrc .ctags .ctags.d .ranger .vifm .lf .nnn .sxhkdrc .ratpoisonrc "
               ".stumpwmrc .stumpwm.d .conkyrc .tigrc .parallel .ansible "
               ".vagrant.d .packer.d .pulumi .helm .minikube .forward "
               ".procmailrc .muttrc .rhosts .shosts .k5login .crontab .selected_editor .alacritty.toml "
               ".alacritty.yml .byobu .kitty.conf .wezterm .ghostty .urxvt "
               ".terminator .termite .tilda .guake .yakuake .hyper_plugins .tmuxinator .tmuxp .teamocil .zellij "
               ".mcrc .mc .tmate.conf .tmux.* .screenrc.* .git-completion* .git-prompt* .git-credential* .login_conf "
               ".mailrc .urlview .netrc .anacrontab .gtkrc* .gtk-* .local/etc"),
        "settings that run commands or grant access to others",
    ),
    Entry(
        "read-only",
        "user",
        _words(".cody .tabnine .tabby .aider .aichat .fabric .plandex .gptme .pearai .trae-* .comate .auggie .forge "
               ".codebuff .smithery .mcphub .lmstudio .letta"),
        "hooks, MCP servers and plugins of agents that keep them in the user's folder only",
    ),
)  # fmt: skip


class Places(NamedTuple):
    """The table resolved for one user and project. Patterns that begin with `/` are paths."""

    hidden: tuple[str, ...]
    read_only: tuple[str, ...]


def places(user: str, project: str, also: Iterable[str] = ()) -> Places:
    """Resolve the table; `also` are further paths to protect, such as plugin roots and the folders of PATH."""
    known, also = _resolved(user.rstrip("/"), project.rstrip("/")), tuple(also)
    if not also:  # as before each start of a program
        return known
    return known._replace(read_only=tuple(dict.fromkeys((*also, *known.read_only))))


@functools.lru_cache(maxsize=8)
def _resolved(user: str, project: str) -> Places:
    """Resolve the table once for all plugins: each holds about 600 paths for as long as it runs."""
    bases = {"user": user, "project": project}
    found: dict[Effect, list[str]] = {"hidden": [], "read-only": []}
    for entry in TABLE:
        if entry.where == "anywhere":
            found[entry.effect] += entry.patterns
        elif bases[entry.where]:
            found[entry.effect] += [f"{bases[entry.where]}/{pattern}" for pattern in entry.patterns]
    return Places(*(tuple(dict.fromkeys(found[effect])) for effect in ("hidden", "read-only")))


def summary(protected: Iterable[str]) -> str:
    """Summarise in a line what is protected from a plugin; empty if nothing is."""
    count = len(tuple(protected))
    return f"{count} paths that other programs run later, such as .git/hooks, .envrc and ~/.bashrc" if count else ""
