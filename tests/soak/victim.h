/* Parts of the program victim.c. */
#pragma once

#include "src/comm/comm.h"

/* Flip every bit of the newest of two checkpoints of a run that is made in
 * `folder`; after each flip loading must give the older one, and fixture_verify()
 * must see the damage. Prints one line a file "FILE: N flips -> outcome"; the
 * exit status is 1 if anything was wrong. Best on a file system in memory. */
int victim_flips(struct comm *comm, const char *folder);
