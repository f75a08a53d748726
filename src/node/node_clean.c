/* Each walk is a child's: fts(3), which follows no link, stays on the file system
 * and changes into each folder, so that no depth is too much. */
#include "src/node/node_clean.h"

#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/clock.h"
#include "src/base/processes.h"
#include "src/job/slurm_run.h"
#include "src/node/node_child.h"
#include "src/node/node_words.h"

#define SHM "/dev/shm"
#define SLURM_S 5.0
#define JOB_S 10.0
#define LIST_S 3.0
#define OWNER_S 5.0
#define CLEAN_S 15.0
#define OWNERS_MAX 64
#define MIB 2048 /* blocks of 512 bytes */

/* --- walks --- */

struct removal {
    const char *path;
    uid_t uid;
    bool all; /* else only what is the user's and older than `before` */
    struct timespec before;
    long removed;
};

static bool may_go(const struct removal *r, const struct stat *st)
{
    return r->all || (st->st_uid == r->uid &&
                      (st->st_ctim.tv_sec < r->before.tv_sec ||
                       (st->st_ctim.tv_sec == r->before.tv_sec &&
                        st->st_ctim.tv_nsec <= r->before.tv_nsec)));
}

/* `keep_top`: the folder itself stays. */
static int remove_tree(struct removal *r, bool keep_top)
{
    char *paths[] = { (char *)r->path, NULL };
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_XDEV, NULL);
    int left = 0;
    for (FTSENT *e; walk != NULL && (e = fts_read(walk)) != NULL;) {
        const struct stat *st = e->fts_statp;
        bool top = e->fts_level == 0 && keep_top;
        if (e->fts_info == FTS_D) {
            if (st->st_uid == r->uid && (st->st_mode & 0700) != 0700 && !top)
                (void)chmod(e->fts_accpath, st->st_mode | 0700);
        } else if (e->fts_info == FTS_DP) {
            if (!top && may_go(r, st) && rmdir(e->fts_accpath) == 0)
                r->removed++;
            else
                left += !top && r->all;
        } else if (e->fts_info != FTS_NS && may_go(r, st)) {
            if (unlink(e->fts_accpath) == 0)
                r->removed++;
            else
                left += r->all;
        }
    }
    if (walk != NULL)
        fts_close(walk);
    return walk == NULL || left > 0;
}

static int remove_jobs(void *arg)
{
    static const char *const begins[] = { "tessera", "tessera-ckpt" };
    const struct node *node = arg;
    int left = 0;
    DIR *shm = opendir(SHM);
    for (struct dirent *e; shm != NULL && (e = readdir(shm)) != NULL;) {
        char path[512], begin[64];
        struct stat st;
        for (int i = 0; i < 2; i++) {
            int n =
                snprintf(begin, sizeof begin, "%s.%ld", begins[i], node->job);
            if (strncmp(e->d_name, begin, (size_t)n) != 0 ||
                (e->d_name[n] != '\0' && e->d_name[n] != '.') ||
                fstatat(dirfd(shm), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
                !S_ISDIR(st.st_mode) || st.st_uid != node->uid)
                continue;
            snprintf(path, sizeof path, SHM "/%s", e->d_name);
            struct removal removal = { .path = path,
                                       .uid = node->uid,
                                       .all = true };
            if (remove_tree(&removal, false) != 0) {
                printf("%s\n", path);
                left = 1;
            }
        }
    }
    return left;
}

static int remove_leavings(void *arg)
{
    struct removal *removal = arg;
    int rc = chdir("/") != 0 || remove_tree(removal, true) != 0;
    printf("%ld\n", removal->removed);
    return rc;
}

static int list_owners(void *arg)
{
    uid_t seen[OWNERS_MAX];
    int count = 0;
    struct stat st;
    DIR *folder = opendir(arg);
    for (struct dirent *e; folder != NULL && count < OWNERS_MAX &&
                           (e = readdir(folder)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            fstatat(dirfd(folder), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        int i = 0;
        while (i < count && seen[i] != st.st_uid)
            i++;
        if (i == count) {
            seen[count++] = st.st_uid;
            printf("%u\n", (unsigned)st.st_uid);
        }
    }
    return folder == NULL;
}

struct share {
    uid_t uid;
    long blocks;
};

static int find_most(void *arg)
{
    char *paths[] = { arg, NULL };
    struct share *shares = NULL;
    size_t count = 0, room = 0, most = 0;
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_XDEV, NULL);
    for (FTSENT *e; walk != NULL && (e = fts_read(walk)) != NULL;) {
        size_t i = 0;
        if (e->fts_level == 0 || e->fts_info == FTS_DP || e->fts_info == FTS_NS)
            continue;
        while (i < count && shares[i].uid != e->fts_statp->st_uid)
            i++;
        if (i == count) {
            if (array_room(&shares, &room, count + 1) != ERR_OK)
                return 1;
            shares[count++] = (struct share){ .uid = e->fts_statp->st_uid };
        }
        shares[i].blocks += e->fts_statp->st_blocks;
        if (shares[i].blocks >= shares[most].blocks)
            most = i;
    }
    if (count > 0)
        printf("user %u has %ld MiB", (unsigned)shares[most].uid,
               shares[most].blocks / MIB);
    return 0;
}

/* --- whose they are --- */

static bool add(struct node_users *users, long uid)
{
    if (array_room(&users->list, &users->room, users->count + 1) != ERR_OK)
        return false;
    users->list[users->count++] = uid;
    return true;
}

static bool has(const struct node_users *users, long uid)
{
    for (size_t i = 0; i < users->count; i++)
        if (users->list[i] == uid)
            return true;
    return false;
}

bool node_clean_jobs(const struct node *node, struct node_users *users,
                     char *why, size_t size)
{
    char *argv[] = { "squeue", "-h",    "-w", (char *)node->name,
                     "-o",     "%A %U", NULL };
    struct buffer out = { 0 };
    bool known = slurm_run(argv, SLURM_S, (size_t)4 << 20, &out) == 0;
    snprintf(why, size, "whose jobs are here is not known: %.200s",
             out.bytes > 0 ? (char *)out.data : "no answer");
    char *rest = (char *)out.data;
    long job, uid;
    for (char *line;
         known && rest != NULL && (line = strsep(&rest, "\n")) != NULL;)
        if (*line != '\0' && sscanf(line, "%ld %ld", &job, &uid) != 2)
            known = false;
        else if (*line != '\0' && job != node->job)
            known = add(users, uid);
    buffer_free(&out);
    return known;
}

/* Real and effective users of all processes. */
static bool add_processes(struct node_users *users)
{
    struct process *list;
    size_t count;
    bool known = processes_list("", &list, &count) == ERR_OK;
    for (size_t i = 0; i < count; i++)
        known =
            known && add(users, list[i].user) && add(users, list[i].effective);
    free(list);
    return known;
}

/* --- what prolog and epilog ask for --- */

void node_clean_job(struct node *node)
{
    struct buffer out = { 0 };
    struct node_child child = { NODE_CHILD(JOB_S, remove_jobs, node),
                                .uid = node->uid, .gid = node->gid };
    int code = node_child(&child, &out);
    if (code != 0)
        node_say(node,
                 "shared memory of the job is still there (code %d): %.200s",
                 code, (char *)out.data);
    buffer_free(&out);
}

/* True: something may be gone. */
static bool clean_user(struct node *node, struct removal *removal)
{
    struct buffer out = { 0 };
    struct node_child child = { NODE_CHILD(OWNER_S, remove_leavings, removal),
                                .uid = removal->uid, .gid = PROCESSES_NOBODY };
    int code = node_child(&child, &out);
    long removed = out.bytes > 0 ? atol((char *)out.data) : 0;
    if (code != 0)
        node_say(node,
                 "what user %u has left in %s is not removed to the end (code "
                 "%d): %.200s",
                 (unsigned)removal->uid, removal->path, code, (char *)out.data);
    else if (removed > 0)
        node_say(node, "removed what user %u has left in %s: %ld files",
                 (unsigned)removal->uid, removal->path, removed);
    buffer_free(&out);
    return code != 0 || removed > 0;
}

static bool clean_users(struct node *node, const char *folder,
                        const struct node_users *busy, char *owners,
                        const struct timespec *now)
{
    double end_s = clock_now() + CLEAN_S;
    bool gone = false;
    if (end_s > node->end_s)
        end_s = node->end_s;
    for (char *line; (line = strsep(&owners, "\n")) != NULL;) {
        long uid = atol(line);
        if (*line == '\0' || has(busy, uid) || uid < processes_first_user("") ||
            uid == PROCESSES_NOBODY)
            continue;
        if (clock_now() >= end_s) {
            node_say(node, "%s is not cleaned to the end: no time is left",
                     folder);
            break;
        }
        struct removal removal = { .path = folder,
                                   .uid = (uid_t)uid,
                                   .before = *now };
        gone = clean_user(node, &removal) || gone;
    }
    return gone;
}

bool node_clean_leavings(struct node *node, const char *folder)
{
    struct node_users busy = { 0 };
    char why[256];
    struct buffer owners = { 0 };
    struct timespec now;
    struct node_child child = { NODE_CHILD(LIST_S, list_owners,
                                           (char *)folder) };
    bool gone = false;
    if (!node->site.enforce || node->wrong[0] != '\0') {
        node_say(node,
                 "dry run, would remove what users without a job left in %s",
                 folder);
        return false;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    if (!node_clean_jobs(node, &busy, why, sizeof why)) {
        node_say(node, "%s is not cleaned, %s", folder, why);
        goto out;
    }
    if (!add_processes(&busy))
        goto out;
    if (node_child(&child, &owners) != 0)
        node_say(node, "%s is not cleaned, listing it takes more than 3 s",
                 folder);
    else
        gone = clean_users(node, folder, &busy, (char *)owners.data, &now);
out:
    buffer_free(&owners);
    free(busy.list);
    return gone;
}

void node_clean_tell_owner(struct node *node, const char *folder)
{
    struct buffer out = { 0 };
    struct node_child child = { NODE_CHILD(OWNER_S, find_most,
                                           (char *)folder) };
    if (node_child(&child, &out) == 0)
        node_say(node, "%s stays full: %s there", folder, (char *)out.data);
    else
        node_say(node,
                 "%s stays full, and whose files are there is not told within "
                 "5 s",
                 folder);
    buffer_free(&out);
}
