/* Exit codes of every program, and what the launch script does with them. */
#pragma once

#define EXIT_DONE 0     /* finished */
#define EXIT_USAGE 64   /* command line or configuration */
#define EXIT_RETRY 75   /* transient: start again */
#define EXIT_REQUEUE 85 /* checkpointed before the end: requeue */
#define EXIT_STOP 93    /* do not requeue; the reason is in the ledger */
