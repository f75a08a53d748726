/* Prolog, epilog and quick look, from the environment that slurmd gives to the exit status.
 *
 * Files that root reads here are the site's: they may lie on a file system that
 * hangs, so even these are a child's, and a program that others than root could
 * have written is told of. */
#include "src/node/node.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/digest.h"
#include "src/base/processes.h"
#include "src/base/rng.h"
#include "src/node/node_admin.h"
#include "src/node/node_child.h"
#include "src/node/node_clean.h"
#include "src/node/node_drain.h"
#include "src/node/node_events.h"
#include "src/node/node_look.h"
#include "src/node/node_verdict.h"
#include "src/node/node_words.h"

#define WORDS_S 6.0
#define FILE_S 3.0
#define NOBODY 65534
#define QUICK_FOLDER "/run/tessera"
#define VERDICT_BYTES_MAX 65536
#define SYSTEM_PATH "/usr/sbin:/usr/bin:/sbin:/bin"
/* What a drain needs, whatever came before. */
#define DRAIN_LEAST_S 5.0

/* --- what there is to do --- */

static int act_prolog(struct node *node);
static int act_epilog(struct node *node);
static int act_quick(struct node *node);

static int recheck_only(struct node *node)
{
    return node_recheck(node, false);
}

static int recheck_and_undrain(struct node *node)
{
    return node_recheck(node, true);
}

static const struct {
    const char *name;
    int (*run)(struct node *node);
    bool of_job;
} acts[] = {
    { "prolog", act_prolog, true },
    { "epilog", act_epilog, true },
    { "quick", act_quick, true },
    { "recheck", recheck_only, false },
    { "undrain", recheck_and_undrain, false },
    { "selftest", node_selftest, false },
};
#define ACTS (int)(sizeof acts / sizeof *acts)

static int act_of(const char *name)
{
    int i = 0;
    while (i < ACTS && strcmp(acts[i].name, name) != 0)
        i++;
    return i;
}

/* --- settings --- */

struct site_files {
    const struct node *node;
    const char *settings;
};

/* "UID MODE PATH" of each, then the settings behind an empty line. */
static int print_site(void *arg)
{
    const struct site_files *files = arg;
    static const char *const ours[] = { "epilog", "prolog", "quick",
                                        "node-health" };
    char path[1200], part[4096];
    struct stat st;
    int fd = open(files->settings, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        printf("%s: %s\n", files->settings, strerror(errno));
        return 1;
    }
    printf("%u %o %s\n", (unsigned)st.st_uid, (unsigned)st.st_mode & 07777,
           files->settings);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        snprintf(path, sizeof path, "%s/%s", files->node->here, ours[i]);
        if (stat(path, &st) == 0)
            printf("%u %o %s\n", (unsigned)st.st_uid,
                   (unsigned)st.st_mode & 07777, path);
    }
    putchar('\n');
    for (ssize_t got; (got = read(fd, part, sizeof part)) > 0;)
        fwrite(part, 1, (size_t)got, stdout);
    return 0;
}

/* Takes the lines of owners off *text. False: the settings are not root's alone,
 * and are not read. */
static bool check_owners(struct node *node, char **text, char *others,
                         size_t size)
{
    bool first = true;
    for (char *line; (line = strsep(text, "\n")) != NULL && *line != '\0';
         first = false) {
        unsigned owner, mode;
        int at = 0;
        if (sscanf(line, "%u %o %n", &owner, &mode, &at) != 2 || at == 0 ||
            (owner == 0 && (mode & 022) == 0))
            continue;
        if (first) {
            node_say(node,
                     "%s: not read, so this is a dry run: it must belong to "
                     "root and be writable by root only",
                     line + at);
            return false;
        }
        snprintf(others + strlen(others), size - strlen(others),
                 "%s belongs to %u (mode %o), ", line + at, owner, mode);
    }
    return true;
}

static void read_settings(struct node *node, const char *settings)
{
    struct site_files files = { node, settings };
    struct node_child child = { NODE_CHILD(FILE_S, print_site, &files) };
    struct buffer out = { 0 };
    char others[2048] = "";
    node_site_defaults(&node->site, node->here);
    if (node_child(&child, &out) != 0) {
        node_say(node, "no settings, so this is a dry run: %s",
                 out.bytes > 0 ? (char *)out.data : "no answer");
        buffer_free(&out);
        return;
    }
    char *text = (char *)out.data;
    if (check_owners(node, &text, others, sizeof others)) {
        node->settings_read = true;
        if (text != NULL)
            node->settings = crc32c(0, text, strlen(text));
        node_site_parse(text != NULL ? text : "", &node->site, node->wrong,
                        sizeof node->wrong);
        if (node->wrong[0] != '\0')
            node_say(node, "%s:%s nothing is drained until that is right",
                     settings, node->wrong);
        if (others[0] != '\0')
            node_say(node,
                     "warning: %swho can do what root can here: give it to "
                     "root, writable by root only",
                     others);
    }
    buffer_free(&out);
}

/* The folder of the slurmd that called us, or called who called us; "". */
static void find_slurmd(char *out, size_t size)
{
    char path[64], line[512];
    pid_t pid = getppid();
    out[0] = '\0';
    for (int up = 0; up < 2 && pid > 1; up++) {
        snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
        ssize_t n = readlink(path, line, sizeof line - 1);
        line[n > 0 ? n : 0] = '\0';
        if (strstr(line, "/slurm") != NULL && strrchr(line, '/') != NULL) {
            *strrchr(line, '/') = '\0';
            snprintf(out, size, ":%s/../bin", line);
            return;
        }
        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        const char *rest = processes_stat(path, line, sizeof line);
        if (rest == NULL || sscanf(rest, "%*c %d", &pid) != 1)
            return;
    }
}

static bool on_path(const char *path, const char *program)
{
    char file[1024];
    for (size_t n; *path != '\0'; path += n + (path[n] == ':')) {
        n = strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)n, path, program);
        if (n > 0 && access(file, X_OK) == 0)
            return true;
    }
    return false;
}

/* Slurm's programs: where a setting says, in the system's folders, beside the
 * slurmd that called us, or on its PATH. */
static void find_slurm(struct node *node)
{
    char path[8192], slurmd[600];
    const char *inherited = getenv("PATH");
    find_slurmd(slurmd, sizeof slurmd);
    snprintf(path, sizeof path, "%s%s" SYSTEM_PATH "%s", node->site.slurm_bin,
             node->site.slurm_bin[0] != '\0' ? ":" : "", slurmd);
    for (size_t n; inherited != NULL && *inherited != '\0';
         inherited += n + (inherited[n] == ':')) {
        n = strcspn(inherited, ":");
        if (*inherited == '/' && strlen(path) + n + 2 < sizeof path)
            snprintf(path + strlen(path), sizeof path - strlen(path), ":%.*s",
                     (int)n, inherited);
    }
    setenv("PATH", path, 1);
    if (!on_path(path, "scontrol") || !on_path(path, "sinfo"))
        node_say(node,
                 "no scontrol in %s: no node can be drained; set "
                 "TESSERA_SLURM_BIN",
                 path);
}

static long number_of(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    if (text == NULL || *text == '\0')
        return -1;
    long number = strtol(text, &end, 10);
    return *end == '\0' && number >= 0 ? number : -1;
}

/* The group of an account, by its number; who has none has nobody's. */
static int print_group(void *arg)
{
    const struct passwd *account = getpwuid(*(const uid_t *)arg);
    printf("%u\n", account != NULL ? (unsigned)account->pw_gid : NOBODY);
    return 0;
}

static void find_group(struct node *node)
{
    struct node_child child = { NODE_CHILD(FILE_S, print_group, &node->uid) };
    struct buffer out = { 0 };
    long gid = number_of("SLURM_JOB_GID");
    if (gid < 0)
        gid = node_child(&child, &out) == 0 ? atol((char *)out.data) : NOBODY;
    node->gid = (gid_t)gid;
    buffer_free(&out);
}

bool node_begin(struct node *node, const char *phase, const char *settings)
{
    const char *name = getenv("SLURMD_NODENAME");
    long job = number_of("SLURM_JOB_ID"), uid = number_of("SLURM_JOB_UID");
    ssize_t n;
    *node = (struct node){ .phase = phase,
                           .begin_s = clock_now(),
                           .end_s = clock_now() + NODE_END_S,
                           .words_left_s = WORDS_S };
    n = readlink("/proc/self/exe", node->here, sizeof node->here - 1);
    node->here[n > 0 ? n : 0] = '\0';
    if (strrchr(node->here, '/') != NULL)
        *strrchr(node->here, '/') = '\0';
    snprintf(node->name, sizeof node->name, "%s", name != NULL ? name : "");
    if (name == NULL && !acts[act_of(phase)].of_job &&
        gethostname(node->name, sizeof node->name - 1) == 0)
        node->name[strcspn(node->name, ".")] = '\0';
    node->job = job > 0 ? job : 0;
    setenv("LC_ALL", "C", 1);
    umask(022);
    read_settings(node, settings);
    find_slurm(node);
    if (node->name[0] == '\0' ||
        (strcmp(phase, "epilog") == 0 && (job <= 0 || uid < 0))) {
        node_say(node, "no job, user or node in the environment: nothing is "
                       "done");
        return false;
    }
    node->uid = uid >= 0 ? (uid_t)uid : 0;
    if (strcmp(phase, "epilog") == 0)
        find_group(node);
    return true;
}

/* --- the job's verdict --- */

enum { VERDICT_NONE, VERDICT_NO_FOLDER = 10, VERDICT_ODD };

struct verdict_file {
    const char *folder;
    char path[NODE_SITE_TEXT + 128];
    uid_t uid;
};

/* With the owner's rights, without following a link and without waiting for a
 * pipe: the folder is open to all, and may hang. */
static int print_verdict(void *arg)
{
    const struct verdict_file *file = arg;
    static char text[VERDICT_BYTES_MAX];
    struct stat st;
    if (stat(file->folder, &st) != 0 || !S_ISDIR(st.st_mode))
        return VERDICT_NO_FOLDER;
    int fd = open(file->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? VERDICT_NONE : VERDICT_ODD;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != file->uid ||
        st.st_size > VERDICT_BYTES_MAX)
        return VERDICT_ODD;
    ssize_t got = read(fd, text, sizeof text);
    if (got > 0)
        fwrite(text, 1, (size_t)got, stdout);
    unlink(file->path);
    return VERDICT_NONE;
}

static void read_verdict(struct node *node, struct node_verdict *verdict)
{
    struct verdict_file file = { .folder = node->site.spool, .uid = node->uid };
    struct node_child child = { NODE_CHILD(FILE_S, print_verdict, &file),
                                .uid = node->uid, .gid = node->gid };
    struct buffer out = { 0 };
    *verdict = (struct node_verdict){ .bad = false };
    if (node->site.spool[0] == '\0')
        return;
    snprintf(file.path, sizeof file.path, "%s/verdict.%ld.%s", file.folder,
             node->job, node->name);
    int code = node_child(&child, &out);
    if (code == NODE_NO_ANSWER)
        node_say(node, "TESSERA_SPOOL %s does not answer: no verdict is read",
                 file.folder);
    else if (code == VERDICT_NO_FOLDER)
        node_say(node, "TESSERA_SPOOL %s is no folder: make it, with mode 1777",
                 file.folder);
    else if (code != 0)
        node_say(node, "%s: not a small file of user %u, ignored", file.path,
                 (unsigned)node->uid);
    else if (!node_verdict_read((char *)out.data, node->name, verdict))
        node_say(node, "%s: no verdict on this node, ignored", file.path);
    buffer_free(&out);
}

/* --- what follows --- */

struct drained {
    struct node *node;
    const char *reason;
};

static void say_drain(void *arg, const char *outcome, const char *text)
{
    const struct drained *drained = arg;
    node_decide(drained->node, outcome, drained->reason, "%s", text);
}

/* Whether it may be drained is decided in src/control/drain.h. True: the node takes
 * no jobs now, whoever drained it, and this is no dry run. */
static bool drain(struct node *node, const char *reason)
{
    double now_s = clock_now();
    struct drained drained = { node, reason[0] != '\0' ? reason : "BAD" };
    const struct node_drain_calls calls = { .say = say_drain, .arg = &drained };
    struct drain_request request = {
        .node = node->name,
        .reason = drained.reason,
        .enforce = node->site.enforce,
        .wrong = node->wrong[0] != '\0' ? node->wrong : NULL,
        .percent = node->site.drain_percent,
        .storm_nodes = node->site.storm_nodes,
        .storm_s = node->site.storm_s,
        .end_s = node->end_s - 3,
        .seed = rng_stream(node->name) ^ (uint64_t)(now_s * 1e6),
    };
    if (request.end_s < now_s + DRAIN_LEAST_S)
        request.end_s = now_s + DRAIN_LEAST_S;
    return node_drain(&request, &calls);
}

static int act_prolog(struct node *node)
{
    char bad[sizeof node->bad], reason[sizeof node->reason];
    node_look(node, node->site.prolog_s);
    if (node->site.stress && node->state != NODE_BAD) {
        node_probe(node, "gemm,gpugemm,hbm,allreduce", node->site.stress_s);
        if (node->state == NODE_BAD) {
            snprintf(bad, sizeof bad, "%s", node->bad);
            snprintf(reason, sizeof reason, "%s", node->reason);
            node_probe(node, bad, node->site.stress_s);
            if (node->state != NODE_BAD)
                node_decide(node, "second-look", reason, NODE_NOT_TWICE,
                            reason);
        }
    }
    node_result(node);
    return node->state == NODE_BAD && drain(node, node->reason);
}

static int act_epilog(struct node *node)
{
    struct node_verdict verdict;
    char reason[128];
    node_clean_job(node);
    read_verdict(node, &verdict);
    node_look(node, node->site.epilog_s);
    if (verdict.probes[0] != '\0' && node->state != NODE_BAD)
        node_probe(node, verdict.probes, NODE_END_S);
    node_result(node);
    snprintf(reason, sizeof reason, "%s said job=%ld, not confirmed",
             verdict.code[0] != '\0' ? verdict.code : "BAD", node->job);
    if (node->state == NODE_BAD)
        (void)drain(node, node->reason);
    else if (verdict.bad && node->site.trust_users)
        (void)drain(node, reason);
    else if (verdict.bad)
        node_decide(node, "not-confirmed", reason,
                    "job's verdict %.*s is not confirmed here (%s)",
                    (int)strcspn(reason, " "), reason,
                    node_state_names[node->state]);
    return 0;
}

static int act_quick(struct node *node)
{
    node_look(node, node->site.prolog_s);
    node_result(node);
    if (node->state == NODE_BAD)
        (void)drain(node, node->reason);
    return 0;
}

bool node_known_act(const char *name)
{
    return act_of(name) < ACTS;
}

/* A child that was left behind has none of our descriptors, so the lock goes with
 * this process. Where there is no place for one, each copy ends within NODE_END_S. */
bool node_quick_alone(void)
{
    char path[128];
    const char *name = getenv("SLURMD_NODENAME");
    (void)mkdir(QUICK_FOLDER, 0755);
    snprintf(path, sizeof path, QUICK_FOLDER "/quick.%.64s",
             name != NULL ? name : "");
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

int node_act(struct node *node)
{
    assert(node_known_act(node->phase));
    return acts[act_of(node->phase)].run(node);
}
