/* Ranks that share one computation: the experts of a block or the chunks of a
 * sequence (struct group_access, for the model).
 *
 * Groups are `degree` neighbouring ranks, [g degree, (g + 1) degree). They
 * exchange by the run's own comm_tensors, so that all tensors of a rank travel
 * in one order (src/comm/DESIGN.md). A rank that does not come in time may
 * itself wait for another one that is dead. So whoever's wait fails holds a
 * roll call: a message from each rank of the run to each on a communicator for
 * that. Who does not answer it is missing, and all others name the same. */
#pragma once

#include "src/base/err.h"
#include "src/comm/comm_tensors.h"
#include "src/model/group_access.h"

struct group;

/* comm and tensors, of the same ranks, are borrowed; of the tensors' exchanges
 * (not their collectives) the group has all for itself. degree divides the
 * ranks. Collective. */
enum err group_create(struct comm *comm, struct comm_tensors *tensors,
                      int degree, struct group **out);
/* NULL is fine. Collective; left out after a roll call, when the ranks are no
 * longer together and the process is to end. */
void group_destroy(struct group *group);

/* Lent. Its wait holds the roll call itself when it fails with ERR_COMM. */
const struct group_access *group_access(const struct group *group);

/* After a failure with which this rank can't go on, rc and its text; ERR_COMM:
 * somebody has not come to an exchange. Waits for all ranks of the run to do
 * the same. Returns ERR_COMM with the missing ranks; where none is, the error
 * of a rank that has another one than ERR_COMM; else rc and its text. Held
 * once: later calls return what the first one has found. */
enum err group_roll_call(struct group *group, enum err rc);
