"""Every system call of Linux, and what a confined program may do with it. Data only.

Each group is a verdict, the reason for it, and the calls with their numbers on x86-64 and on 64-bit ARM (None where an
architecture lacks one). A number that is not here is `ABSENT`, so a call that a later kernel adds stays closed until it
is added here. The table covers Linux 6.18 and what was announced after it.

Part of the spawner's start-up: standard library only, and nothing is computed that the filter does not need.
"""

from __future__ import annotations

ALLOW = "allow"
REFUSE = "refuse"  # EPERM
ABSENT = "absent"  # ENOSYS, as on a kernel that lacks the call: programs then use another
EXAMINE = "examine"  # `seccomp` checks the arguments

Numbers = tuple[int | None, int | None]

DECISIONS: tuple[tuple[str, str, dict[str, Numbers]], ...] = (
    (
        ALLOW, "uses descriptors that it has; what may be opened was decided when it was",
        {
            "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66),
            "pread64": (17, 67), "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70),
            "preadv2": (327, 286), "pwritev2": (328, 287), "lseek": (8, 62), "sendfile": (40, 71),
            "splice": (275, 76), "tee": (276, 77), "vmsplice": (278, 75), "copy_file_range": (326, 285),
            "close": (3, 57), "close_range": (436, 436), "dup": (32, 23), "dup2": (33, None),
            "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59), "flock": (73, 32),
            "fsync": (74, 82), "fdatasync": (75, 83), "sync": (162, 81), "syncfs": (306, 267),
            "sync_file_range": (277, 84), "ftruncate": (77, 46), "fallocate": (285, 47),
            "fadvise64": (221, 223), "readahead": (187, 213), "getdents": (78, None),
            "getdents64": (217, 61), "fstat": (5, 80), "fstatfs": (138, 44), "fchdir": (81, 50),
        },
    ),
    (
        ALLOW, "says what a path leads to, as far as mounts show it; contents need an open",
        {
            "stat": (4, None), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291),
            "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
            "readlink": (89, None), "readlinkat": (267, 78), "statfs": (137, 43), "getcwd": (79, 17),
            "chdir": (80, 49), "umask": (95, 166), "getxattr": (191, 8), "lgetxattr": (192, 9),
            "fgetxattr": (193, 10), "listxattr": (194, 11), "llistxattr": (195, 12),
            "flistxattr": (196, 13),
        },
    ),
    (
        ALLOW, "changes folders, which Landlock and mounts decide about",
        {
            "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None),
            "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38), "link": (86, None),
            "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "truncate": (76, 45),
        },
    ),
    (
        ALLOW, "changes times, owners and attributes of files, which read-only mounts decide about",
        {
            "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
            "utimensat": (280, 88), "chown": (92, None), "lchown": (94, None), "fchown": (93, 55),
            "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
            "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
        },
    ),
    (
        ALLOW, "its own memory, within its limits",
        {
            "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214),
            "mremap": (25, 216), "msync": (26, 227), "madvise": (28, 233), "mincore": (27, 232),
            "mlock": (149, 228), "mlock2": (325, 284), "munlock": (150, 229), "mlockall": (151, 230),
            "munlockall": (152, 231), "pkey_mprotect": (329, 288), "pkey_alloc": (330, 289),
            "pkey_free": (331, 290), "mseal": (462, 462), "map_shadow_stack": (453, 453),
            "mbind": (237, 235), "set_mempolicy": (238, 237), "get_mempolicy": (239, 236),
            "set_mempolicy_home_node": (450, 450),
        },
    ),
    (
        ALLOW, "its own processes and threads, within its limits; what may be executed, Landlock decides",
        {
            "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
            "exit": (60, 93), "exit_group": (231, 94), "wait4": (61, 260), "waitid": (247, 95),
            "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getpgid": (121, 155),
            "getpgrp": (111, None), "setpgid": (109, 154), "getsid": (124, 156), "setsid": (112, 157),
            "set_tid_address": (218, 96), "set_robust_list": (273, 99), "get_robust_list": (274, 100),
            "rseq": (334, 293), "membarrier": (324, 283), "futex": (202, 98), "futex_waitv": (449, 449),
            "futex_wake": (454, 454), "futex_wait": (455, 455), "futex_requeue": (456, 456),
            "arch_prctl": (158, None), "getcpu": (309, 168), "getrlimit": (97, 163),
            "getrusage": (98, 165), "times": (100, 153),
        },
    ),
    (
        ALLOW, "signals; whom they reach, the pid namespace or Landlock decides",
        {
            "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigaction": (13, 134),
            "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
            "rt_sigtimedwait": (128, 137), "rt_sigqueueinfo": (129, 138),
            "rt_tgsigqueueinfo": (297, 240), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132),
            "pause": (34, None), "signalfd": (282, None), "signalfd4": (289, 74),
            "restart_syscall": (219, 128), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
        },
    ),
    (
        ALLOW, "the kernel makes these calls itself in a program that an administrator traces",
        {
            "uretprobe": (335, None), "uprobe": (336, None),
        },
    ),
    (
        ALLOW, "says who it is, or becomes who it is already: it has no capability to be anybody else",
        {
            "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
            "getresuid": (118, 148), "getresgid": (120, 150), "getgroups": (115, 158),
            "capget": (125, 90), "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145),
            "setregid": (114, 143), "setresuid": (117, 147), "setresgid": (119, 149),
            "setfsuid": (122, 151), "setfsgid": (123, 152), "setgroups": (116, 159),
            "capset": (126, 91),
        },
    ),
    (
        ALLOW, "clocks, timers and waiting",
        {
            "time": (201, None), "gettimeofday": (96, 169), "clock_gettime": (228, 113),
            "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
            "getitimer": (36, 102), "setitimer": (38, 103), "alarm": (37, None),
            "timer_create": (222, 107), "timer_settime": (223, 110), "timer_gettime": (224, 108),
            "timer_getoverrun": (225, 109), "timer_delete": (226, 111), "timerfd_create": (283, 85),
            "timerfd_settime": (286, 86), "timerfd_gettime": (287, 87), "poll": (7, None),
            "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
            "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
            "epoll_wait": (232, None), "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441),
            "eventfd": (284, None), "eventfd2": (290, 19),
        },
    ),
    (
        ALLOW, "facts about the machine that everybody may know, and random numbers",
        {
            "uname": (63, 160), "sysinfo": (99, 179), "getrandom": (318, 278),
        },
    ),
    (
        ALLOW, "looks at priorities, or gives up the rest of its turn",
        {
            "getpriority": (140, 141), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
            "sched_getattr": (315, 275), "sched_get_priority_max": (146, 125),
            "sched_get_priority_min": (147, 126), "sched_rr_get_interval": (148, 127),
            "sched_getaffinity": (204, 123), "sched_yield": (24, 124), "ioprio_get": (252, 31),
        },
    ),
    (
        ALLOW, "sockets that it has; which it can have, `socket` decides",
        {
            "recvfrom": (45, 207), "recvmsg": (47, 212), "recvmmsg": (299, 243), "shutdown": (48, 210),
            "getsockname": (51, 204), "getpeername": (52, 205), "getsockopt": (55, 209),
        },
    ),
    (
        ALLOW, "narrows its own rights further",
        {
            "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
            "landlock_restrict_self": (446, 446),
        },
    ),
    (
        EXAMINE, "which family, type and protocol: `socket_table`",
        {
            "socket": (41, 198), "socketpair": (53, 199),
        },
    ),
    (
        EXAMINE, "not without a granted network or `network:unix`; a broker does it for Unix sockets in own folders",
        {
            "connect": (42, 203), "bind": (49, 200),
        },
    ),
    (
        EXAMINE, "a socket that was never bound listens on a port that nobody was asked about",
        {
            "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242),
        },
    ),
    (
        EXAMINE, "not with MSG_FASTOPEN where ports are granted: that connects without `connect`",
        {
            "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
        },
    ),
    (
        EXAMINE, "options that change what a socket is, or load programs into the kernel: `socket_table`",
        {
            "setsockopt": (54, 208),
        },
    ),
    (
        EXAMINE, "some put words into a terminal's mouth, set up interfaces, or change files past Landlock",
        {
            "ioctl": (16, 29),
        },
    ),
    (
        EXAMINE, "a lease on a file stalls anyone who opens it for 45 seconds, and the host opens a plugin's files",
        {
            "fcntl": (72, 25),
        },
    ),
    (
        EXAMINE, "no file may lend its owner's rights (set-user-ID)",
        {
            "open": (2, None), "creat": (85, None), "openat": (257, 56), "mknod": (133, None),
            "mknodat": (259, 33), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
            "fchmodat2": (452, 452),
        },
    ),
    (
        EXAMINE, "no whiteouts, which are devices to Landlock",
        {
            "renameat2": (316, 276),
        },
    ),
    (
        EXAMINE, "no new namespace",
        {
            "clone": (56, 220),
        },
    ),
    (
        EXAMINE, "its own limits only, and not those that carry our marks",
        {
            "setrlimit": (160, 164), "prlimit64": (302, 261),
        },
    ),
    (
        EXAMINE, "not those that make attacks easier, such as no randomisation",
        {
            "personality": (135, 92),
        },
    ),
    (
        EXAMINE, "not core scheduling, which keeps others off a core",
        {
            "prctl": (157, 167),
        },
    ),
    (
        EXAMINE, "nothing that can be executed",
        {
            "memfd_create": (319, 279),
        },
    ),
    (
        EXAMINE, "a filter of its own, but no listener: a thread has one, and that is ours",
        {
            "seccomp": (317, 277),
        },
    ),
    (
        EXAMINE, "its own priority only, which can only get worse",
        {
            "setpriority": (141, 140), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
            "sched_setaffinity": (203, 122), "ioprio_set": (251, 30),
        },
    ),
    (
        EXAMINE, "tells the names of files in folders that it may not list, so only with `filesystem:read`",
        {
            "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
            "inotify_rm_watch": (255, 28),
        },
    ),
    (
        REFUSE, "looks into other processes, or changes them",
        {
            "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
            "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272),
            "pidfd_getfd": (438, 438), "move_pages": (279, 239), "migrate_pages": (256, 238),
        },
    ),
    (
        REFUSE, "another view of the file system, or a way around paths",
        {
            "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
            "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428),
            "open_tree_attr": (467, 467), "move_mount": (429, 429), "fsopen": (430, 430),
            "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
            "mount_setattr": (442, 442), "name_to_handle_at": (303, 264),
            "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
            "quotactl": (179, 60), "quotactl_fd": (443, 443),
        },
    ),
    (
        REFUSE, "large, and full of ways around what is refused here",
        {
            "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
            "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
            "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
            "memfd_secret": (447, 447), "modify_ldt": (154, None),
        },
    ),
    (
        REFUSE, "System V IPC: it belongs to no process, and what it holds counts against no limit",
        {
            "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197),
            "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
            "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
        },
    ),
    (
        REFUSE, "POSIX message queues: the same",
        {
            "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182),
            "mq_timedreceive": (243, 183), "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
        },
    ),
    (
        REFUSE, "the machine itself",
        {
            "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
            "finit_module": (313, 273), "delete_module": (176, 106), "clock_settime": (227, 112),
            "clock_adjtime": (305, 266), "settimeofday": (164, 170), "adjtimex": (159, 171),
            "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
            "sethostname": (170, 161), "setdomainname": (171, 162), "acct": (163, 89),
            "syslog": (103, 116), "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None),
        },
    ),
    (
        ABSENT, "its arguments lie in memory, where the filter cannot look; programs take `clone` and `openat` then",
        {
            "clone3": (435, 435), "openat2": (437, 437),
        },
    ),
    (
        ABSENT, "the same: it sets policies and priorities; programs take `sched_setscheduler` then",
        {
            "sched_setattr": (314, 274),
        },
    ),
    (
        ABSENT, "asynchronous input and output, whose number is limited for the whole machine and not for one program",
        {
            "io_setup": (206, 0), "io_destroy": (207, 1), "io_getevents": (208, 4),
            "io_pgetevents": (333, 292), "io_submit": (209, 2), "io_cancel": (210, 3),
        },
    ),
    (
        ABSENT, "tells which parts of a file others have read",
        {
            "cachestat": (451, 451),
        },
    ),
    (
        ABSENT, "newer ways to do what older calls do, which programs try first and can do without",
        {
            "getxattrat": (464, 464), "listxattrat": (465, 465), "setxattrat": (463, 463),
            "removexattrat": (466, 466), "file_getattr": (468, 468), "file_setattr": (469, 469),
            "statmount": (457, 457), "listmount": (458, 458), "listns": (470, 470),
            "lsm_get_self_attr": (459, 459), "lsm_set_self_attr": (460, 460),
            "lsm_list_modules": (461, 461),
        },
    ),
    (
        ABSENT, "gone from the kernel, or kept for programs that nobody has",
        {
            "uselib": (134, None), "ustat": (136, None), "sysfs": (139, None), "_sysctl": (156, None),
            "create_module": (174, None), "get_kernel_syms": (177, None), "query_module": (178, None),
            "nfsservctl": (180, 42), "getpmsg": (181, None), "putpmsg": (182, None),
            "afs_syscall": (183, None), "tuxcall": (184, None), "security": (185, None),
            "vserver": (236, None), "epoll_ctl_old": (214, None), "epoll_wait_old": (215, None),
            "lookup_dcookie": (212, 18), "remap_file_pages": (216, 234), "set_thread_area": (205, None),
            "get_thread_area": (211, None),
        },
    ),
)  # fmt: skip
NUMBERS: dict[str, Numbers] = {name: numbers for _, _, calls in DECISIONS for name, numbers in calls.items()}

# `ioctl`, by request. For devices Landlock decides; these work on any file, folder, terminal or socket.
REFUSED_REQUESTS = {
    0x5412: "TIOCSTI: puts words into a terminal's mouth",
    0x541C: "TIOCLINUX: the same, on a console",
    0x5423: "TIOCSETD: loads another driver for a terminal",
}
# A kind is the second byte of a request. These belong to file systems and sockets, and only those below are allowed:
# others change attributes, keys or whole subvolumes with a read-only descriptor.
EXAMINED_KINDS = {
    0x12: "block devices", 0x15: "all file systems", 0x58: "all file systems, XFS", 0x66: "all file systems, ext4",
    0x6E: "NILFS", 0x72: "FAT", 0x76: "all file systems", 0x89: "sockets", 0x94: "btrfs", 0xBC: "bcachefs",
    0xCF: "CIFS", 0xE5: "FUSE", 0xF5: "F2FS",
}  # fmt: skip
ALLOWED_REQUESTS = {
    0x80086601: "FS_IOC_GETFLAGS", 0x801C581F: "FS_IOC_FSGETXATTR", 0x80087601: "FS_IOC_GETVERSION",
    0xC020660B: "FS_IOC_FIEMAP", 0x80111500: "FS_IOC_GETFSUUID", 0x40049409: "FICLONE", 0x4020940D: "FICLONERANGE",
    0x8901: "FIOSETOWN", 0x8902: "SIOCSPGRP", 0x8903: "FIOGETOWN", 0x8904: "SIOCGPGRP", 0x8905: "SIOCATMARK",
    0x8906: "SIOCGSTAMP", 0x8910: "SIOCGIFNAME", 0x8912: "SIOCGIFCONF", 0x8913: "SIOCGIFFLAGS",
    0x8915: "SIOCGIFADDR", 0x8917: "SIOCGIFDSTADDR", 0x8919: "SIOCGIFBRDADDR", 0x891B: "SIOCGIFNETMASK",
    0x891D: "SIOCGIFMETRIC", 0x8921: "SIOCGIFMTU", 0x8927: "SIOCGIFHWADDR", 0x8933: "SIOCGIFINDEX",
    0x8942: "SIOCGIFTXQLEN",
}  # fmt: skip
# `fcntl`: commands that report or delay others' use of a file.
REFUSED_COMMANDS = {1024: "F_SETLEASE", 1026: "F_NOTIFY", 1040: "F_SETDELEG"}
