/* Shares memory between the ranks of a node through memory files that peers
 * open below /proc. There is no MPI window here: ranks read and write the
 * memory directly.
 *
 * A file in /dev/shm would have a name that others can take, and would outlive
 * a rank that is killed. A memory file (memfd_create) has no name in any file
 * system and ends with the last who maps it; a peer opens it as
 * /proc/PID/fd/FD. PID and FD may be somebody else's by then, or of another PID
 * namespace: so each rank shows its peers a card with a random name that it
 * gave to the file, and who opens one compares the name and the size. A node
 * shares if all of its ranks could; if not, its ranks send messages. */
#include "src/comm/comm_window.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/arena.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/comm/comm_impl.h"

#define NAME "tessera-%016" PRIx64 "%016" PRIx64
#define NAME_BYTES 48

/* What a rank tells the others: where its memory can be opened. The name, of
 * random bits, proves that what is found there is that memory and not something
 * of a process that has the same number in another namespace. */
struct card {
    int64_t pid;
    int64_t fd; /* < 0: it has none */
    uint64_t bytes;
    int64_t able; /* known in the second round: it has mapped all it wants */
    char name[NAME_BYTES];
};

struct part {
    void *base;
    size_t bytes;
};

struct comm_window {
    struct comm *comm;
    enum comm_window_kind kind;
    struct arena own;        /* empty where the node's lowest rank has it */
    struct part *parts;      /* [size] of the peers */
    int *nodes;              /* [size] */
    int *members;            /* [size] the ranks that share with this one */
    int member_count, place; /* and this one's place among them */
    struct card *cards;      /* [size] until created */
};

/* Whether this rank maps memory of `rank`. */
static bool wants(const struct comm_window *window, int rank)
{
    const struct comm *comm = window->comm;
    if (rank == comm->rank || !comm_same_host(comm, rank, comm->rank))
        return false;
    return window->kind == COMM_WINDOW_EACH || rank == comm->nodes[rank];
}

/* Whether this rank has memory that a peer maps. */
static bool wanted(const struct comm_window *window)
{
    const struct comm *comm = window->comm;
    int others = 0;
    for (int r = 0; r < comm->size; r++)
        others += r != comm->rank && comm_same_host(comm, r, comm->rank);
    return others > 0 && (window->kind == COMM_WINDOW_EACH ||
                          comm->nodes[comm->rank] == comm->rank);
}

static enum err make_room(struct comm *comm, struct comm_window **out)
{
    size_t size = (size_t)comm->size;
    TRY(new_zeroed(out, 1));
    (*out)->comm = comm;
    TRY(new_zeroed(&(*out)->parts, size));
    TRY(new_zeroed(&(*out)->nodes, size));
    TRY(new_zeroed(&(*out)->members, size));
    TRY(new_zeroed(&(*out)->cards, size));
    (*out)->cards[comm->rank].fd = -1; /* 0 would be standard input */
    return ERR_OK;
}

/* Makes this rank's memory, still without pages, and its card. */
static enum err make_card(size_t bytes, struct card *card)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_set(ERR_UNSUPPORTED, "getrandom gives nothing");
    snprintf(card->name, sizeof card->name, NAME, random[0], random[1]);
    int fd = memfd_create(card->name, MFD_CLOEXEC);
    if (fd < 0)
        return err_set(ERR_UNSUPPORTED, "memfd_create: %s", strerror(errno));
    if (ftruncate(fd, (off_t)bytes) != 0) {
        close(fd);
        return err_set(ERR_UNSUPPORTED, "memory of %zu bytes: %s", bytes,
                       strerror(errno));
    }
    card->pid = getpid();
    card->fd = fd;
    card->bytes = bytes;
    return ERR_OK;
}

/* Opens the memory of `rank`; the text of an error is about it. */
static enum err open_part(const struct card *card, int rank, int *fd)
{
    char path[64];
    char want[NAME_BYTES + 32];
    char link[NAME_BYTES + 32] = "";
    struct stat status;
    if (card->fd < 0)
        return err_set(ERR_UNSUPPORTED, "rank %d has no memory to share", rank);
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)card->pid,
             (long long)card->fd);
    snprintf(want, sizeof want, "/memfd:%s (deleted)", card->name);
    if (readlink(path, link, sizeof link - 1) < 0)
        return err_set(ERR_UNSUPPORTED, "memory of rank %d: %s: %s", rank, path,
                       strerror(errno));
    if (strcmp(link, want) != 0)
        return err_set(ERR_UNSUPPORTED,
                       "memory of rank %d: %s is another process's (PID "
                       "namespaces?)",
                       rank, path);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0)
        return err_set(ERR_UNSUPPORTED, "memory of rank %d: %s: %s", rank, path,
                       strerror(errno));
    if (fstat(*fd, &status) != 0 || status.st_size != (off_t)card->bytes) {
        close(*fd);
        return err_set(ERR_UNSUPPORTED, "memory of rank %d: wrong size", rank);
    }
    return ERR_OK;
}

static enum err map_part(struct comm_window *window, const struct card *card,
                         int rank)
{
    struct part *part = &window->parts[rank];
    int fd = -1;
    assert(rank != window->comm->rank && part->base == NULL);
    TRY(open_part(card, rank, &fd));
    void *base = arena_map_file(card->bytes, fd);
    int why = errno;
    close(fd);
    if (base == NULL)
        return err_set(ERR_UNSUPPORTED, "memory of rank %d: mmap: %s", rank,
                       strerror(why));
    *part = (struct part){ .base = base, .bytes = card->bytes };
    return ERR_OK;
}

static void unmap_parts(struct comm_window *window)
{
    for (int r = 0; window->parts != NULL && r < window->comm->size; r++) {
        if (window->parts[r].base != NULL)
            munmap(window->parts[r].base, window->parts[r].bytes);
        window->parts[r] = (struct part){ 0 };
    }
}

/* A node shares when all of its ranks could do their part. */
static void find_nodes(struct comm_window *window)
{
    const struct comm *comm = window->comm;
    int *nodes = window->nodes, me = comm->rank;
    memcpy(nodes, comm->nodes, (size_t)comm->size * sizeof *nodes);
    for (int r = 0; r < comm->size; r++)
        if (!window->cards[r].able)
            nodes[comm->nodes[r]] = -1;
    for (int r = comm->size - 1; r >= 0; r--) /* the lowest of a node last */
        if (nodes[comm->nodes[r]] < 0)
            nodes[r] = r;
    for (int r = 0; r < comm->size; r++) {
        if (r == me)
            window->place = window->member_count;
        if (nodes[r] == nodes[me])
            window->members[window->member_count++] = r;
    }
}

/* Make, show, open and judge; afterwards window->nodes is the same on all
 * ranks. A rank that cannot open a peer's memory must not share with it while
 * the peer thinks that it does: so all tell all how it went, in a second round,
 * and everybody draws the same conclusion from the same cards. */
static enum err share(struct comm_window *window, size_t bytes)
{
    struct comm *comm = window->comm;
    struct card *own = &window->cards[comm->rank];
    enum err able = wanted(window) ? make_card(bytes, own) : ERR_OK;
    TRY(comm_gather_rows(comm, window->cards, sizeof *own));
    for (int r = 0; r < comm->size && able == ERR_OK; r++) {
        const struct card *card = &window->cards[r];
        if (!wants(window, r))
            continue;
        assert(window->kind == COMM_WINDOW_EACH || card->fd < 0 ||
               card->bytes == bytes);
        able = map_part(window, card, r);
    }
    own->able = able == ERR_OK;
    able = comm_agree(comm, able);
    if (able != ERR_OK && able != ERR_UNSUPPORTED)
        return able;
    if (able != ERR_OK && comm->rank == 0 && !comm->window_refused)
        log_info("ranks of a node use messages, not memory: %s", err_text());
    comm->window_refused |= able != ERR_OK;
    TRY(comm_gather_rows(comm, window->cards, sizeof *own));
    find_nodes(window);
    return ERR_OK;
}

/* Takes pages for the own part: shared, or private where nobody maps it. */
static enum err take_pages(struct comm_window *window, size_t bytes)
{
    const struct comm *comm = window->comm;
    int me = comm->rank;
    int fd = (int)window->cards[me].fd;
    int node = window->nodes[me];
    if (node == comm->nodes[me]) {
        if (window->kind == COMM_WINDOW_NODE && node != me)
            return ERR_OK;
        if (fd >= 0)
            return arena_create_shared(bytes, fd, &window->own);
    }
    unmap_parts(window);
    return arena_create(bytes, &window->own);
}

enum err comm_window_create(struct comm *comm, enum comm_window_kind kind,
                            size_t bytes, struct comm_window **out)
{
    enum err rc = ERR_OK;
    struct comm_window *window = NULL;
    assert(bytes > 0);
    *out = NULL;
    /* a rank without memory must not leave the others waiting */
    TRY_OUT(comm_agree(comm, make_room(comm, &window)));
    window->kind = kind;
    TRY_OUT(share(window, bytes));
    TRY_OUT(comm_agree(comm, take_pages(window, bytes)));
out:
    if (window != NULL && window->cards != NULL) {
        if (window->cards[comm->rank].fd >= 0)
            close((int)window->cards[comm->rank].fd);
        free(window->cards);
        window->cards = NULL;
    }
    return new_or_none(rc, window, out, comm_window_destroy);
}

void comm_window_destroy(struct comm_window *window)
{
    if (window == NULL)
        return;
    unmap_parts(window);
    arena_destroy(&window->own);
    free(window->cards);
    free(window->members);
    free(window->nodes);
    free(window->parts);
    free(window);
}

int comm_window_node(const struct comm_window *window, int rank)
{
    assert(rank >= 0 && rank < window->comm->size);
    return window->nodes[rank];
}

void *comm_window_part(const struct comm_window *window, int rank)
{
    int me = window->comm->rank;
    if (comm_window_node(window, rank) != window->nodes[me])
        return NULL;
    if (window->kind == COMM_WINDOW_NODE)
        rank = window->nodes[me];
    return rank == me ? window->own.base : window->parts[rank].base;
}

enum err comm_window_start_meet(struct comm_window *window,
                                struct comm_request **out)
{
    enum err rc = ERR_OK;
    struct comm *comm = window->comm;
    struct comm_request *request = NULL;
    atomic_thread_fence(memory_order_seq_cst);
    TRY_OUT(comm_request_take(comm, true, "barrier of a node", &request));
    TRY_OUT(comm_tree_barrier(request, window->members, window->member_count,
                              window->place));
out:
    return comm_request_started(rc, request, out);
}
