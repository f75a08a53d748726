/* Crash points: the places in the commit protocol where a test kills the
 * process, to prove that no moment of death loses a committed step.
 *
 * Compiled with CKPT_CRASH_POINTS, which a shipped build is not:
 * TESSERA_CRASH_AT=NAME[:RANK] makes the process (of that rank, or every rank)
 * send itself SIGKILL when it reaches the point NAME, or SIGSTOP if there is a
 * variable TESSERA_CRASH_STOP; with TESSERA_CRASH_WAIT=SECONDS only the thread
 * that has reached it sleeps. TESSERA_CRASH_TRACE=FILE gets a line "NAME RANK"
 * for every point that is reached. */
#pragma once

/* Die or stop here if the environment says so; `name` must be in the table.
 * Nothing at all in a shipped build. */
void ckpt_crash_point(const char *name, int rank);

/* The names, in the order in which a save to the run directory comes by. What a
 * death leaves: up to "commit-renamed" a temporary folder, which the next sweep
 * removes, and the checkpoints as they were, though at "old-aside" under
 * .old-step-*, which the next load puts back; from there on the new one. */
#define CKPT_CRASH_RUN                                                         \
    "staged",               /* the state is copied, no file was touched */     \
        "begin",            /* rank 0 is about to make the temporary folder */ \
        "folder-made",      /* the temporary folder exists */                  \
        "owner-written",    /* and says whose it is */                         \
        "folder-agreed",    /* every rank knows of it */                       \
        "shard-created",    /* its room is reserved, nothing is written */     \
        "shard-half",       /* part of the payload is written */               \
        "shard-written",    /* all of it, not yet synced */                    \
        "shard-synced",     /* synced under its .part name */                  \
        "shard-renamed",    /* under its final name */                         \
        "shards-agreed",    /* every rank's shard is durable */                \
        "records-gathered", /* rank 0 has every shard's record */              \
        "manifest-checked", /* the manifest is in memory and proven */         \
        "view-written",     /* checkpoint.h5 is there */                       \
        "manifest-written", /* the temporary folder is a whole checkpoint */   \
        "owner-removed",    /* nothing but the checkpoint is in the folder */  \
        "old-aside",        /* only where two folders can't be exchanged */    \
        "commit-renamed",   /* committed, the rename not yet synced */         \
        "commit-synced",    /* committed and durable */                        \
        "latest-written",   /* LATEST names the new step */                    \
        "prune-renamed",    /* an old step is trash, not yet deleted */        \
        "pruned",           /* retention is done */                            \
        "file-removed",     /* this rank's file of the old step is gone */     \
        "result-agreed",    /* every rank knows of the commit */               \
        "done"              /* everything is done */
/* Likewise to the nodes' own folders. A node that has not come to
 * "local-committed" has a temporary folder, and the step counts only where the
 * nodes' parts and their parity give all of it. */
#define CKPT_CRASH_NODES                                                       \
    "local-folder-made",       /* the temporary folder exists on this node */  \
        "local-shard-written", /* this rank's shard is in it */                \
        "local-prepared",      /* room for the parity is reserved */           \
        "local-folded",        /* part of the parity is there */               \
        "local-sealed",        /* the parity files are complete */             \
        "local-verified",      /* the parity is here and good */               \
        "local-agreed",        /* every node has all that it must have */      \
        "local-committed",     /* this node has the step */                    \
        "local-tidied",        /* all nodes have it, older ones are gone */    \
        "local-rebuilding",    /* loading: a lost shard is to be made */       \
        "local-rebuilt"        /* it is good, but has not its name yet */
