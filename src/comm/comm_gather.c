/* Gathers what ranks have of different lengths, which none knows before: first
 * the lengths, then the parts. */
#include <string.h>

#include "src/base/new.h"
#include "src/comm/comm.h"

enum err comm_gather_parts(struct comm *comm, const void *own, size_t bytes,
                           void *all, size_t *bytes_of)
{
    int rank = comm_rank(comm);
    size_t total = 0;
    char *room = NULL;
    bytes_of[rank] = bytes;
    memcpy(all, &room, sizeof room);
    TRY(comm_gather_rows(comm, bytes_of, sizeof *bytes_of));
    for (int r = 0; r < comm_size(comm); r++)
        total += bytes_of[r];
    enum err rc = new_room(&room, total + 1);
    memcpy(all, &room, sizeof room);
    TRY(comm_agree(comm, rc));
    size_t *offsets = comm_sizes(comm, 0);
    total = 0;
    for (int r = 0; r < comm_size(comm); r++) {
        offsets[r] = total;
        total += bytes_of[r];
    }
    if (bytes > 0)
        memcpy(room + offsets[rank], own, bytes);
    return comm_all_gather(comm, room, bytes_of, offsets);
}
