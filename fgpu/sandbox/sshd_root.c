// Loaded into sshd where root of a container runs it without capabilities. To separate privileges sshd enters a folder
// (chroot) and becomes another user, which the kernel refuses there, and ends: root has none to separate. So these calls
// change nothing, and sshd is told what it asked for. Without any library, so that it loads beside every libc.
typedef unsigned id_t;
static id_t user, group;

static int become(id_t *id, id_t wanted) {
    if (*id && !wanted) return -1;  // sshd tries whether it could go back, and demands that it cannot
    *id = wanted;
    return 0;
}

int chroot(const char *path) { (void)path; return 0; }
int setgroups(unsigned long count, const id_t *groups) { (void)count; (void)groups; return 0; }
int initgroups(const char *name, id_t added) { (void)name; (void)added; return 0; }
int setuid(id_t id) { return become(&user, id); }
int seteuid(id_t id) { return become(&user, id); }
int setresuid(id_t real, id_t effective, id_t saved) { (void)effective; (void)saved; return become(&user, real); }
int setgid(id_t id) { return become(&group, id); }
int setegid(id_t id) { return become(&group, id); }
int setresgid(id_t real, id_t effective, id_t saved) { (void)effective; (void)saved; return become(&group, real); }
id_t getuid(void) { return user; }
id_t geteuid(void) { return user; }
id_t getgid(void) { return group; }
id_t getegid(void) { return group; }

// Of libaudit, where sshd is linked to it: without leave to write to the host's audit log no terminal would open.
int audit_log_acct_message(void) { return 1; }
