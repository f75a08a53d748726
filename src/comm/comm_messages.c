/* Collectives whose messages the caller lists: several to one rank, from places that
 * need not be neighbours in memory. */
#include <assert.h>

#include "src/comm/comm_impl.h"

/* A long message is sent fragment by fragment, each when the one before has arrived, and
 * fragments of two at once would meet those of the other. So each one's next message
 * to the same rank is of the next round: both sides count alike. */
enum err comm_messages_add(struct comm_request *request, int count,
                           struct comm_message (*at)(const void *arg, int i),
                           const void *arg)
{
    bool is_long = false;
    int left = count;
    for (int i = 0; i < count && !is_long; i++)
        is_long = at(arg, i).bytes > COMM_FRAGMENT_BYTES;
    for (int round = 0; left > 0; round++) {
        struct comm_message last = { .peer = -1 };
        int number = 0; /* among its peer's of one way */
        request->round = round;
        for (int i = 0; i < count; i++) {
            struct comm_message m = at(arg, i);
            bool same = m.peer == last.peer && m.receive == last.receive;
            number = same ? number + 1 : 0;
            last = m;
            if (is_long ? number != round : round > 0)
                continue;
            left--;
            TRY(comm_request_add(request, m.receive, m.data, m.bytes, m.peer,
                                 request->tag));
        }
    }
    return ERR_OK;
}

static struct comm_message listed(const void *arg, int i)
{
    return ((const struct comm_message *)arg)[i];
}

enum err comm_start_messages(struct comm *comm,
                             const struct comm_message *messages, int count,
                             struct comm_request **out)
{
    enum err rc = ERR_OK;
    struct comm_request *request = NULL;
    assert(count >= 0 && count <= 2 * comm->size);
    TRY_OUT(comm_request_take(comm, true, "messages", &request));
    comm_beat_began(request, 0);
    TRY_OUT(comm_messages_add(request, count, listed, messages));
out:
    return comm_request_started(rc, request, out);
}
