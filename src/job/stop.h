/* The stop flag: one of the two globals of the project. Signal handlers for
 * SIGUSR1 (time is nearly up), SIGTERM (preemption, scancel) and SIGHUP (the
 * terminal is closed; not under nohup) only set it; the training loop polls it,
 * all ranks agree on the step, checkpoint, and exit with EXIT_REQUEUE. SIGINT
 * sets it too; a second SIGINT ends the process. */
#ifndef TESSERA_JOB_STOP_H
#define TESSERA_JOB_STOP_H

#include "src/base/err.h"

enum err stop_install(void);
/* SIGPIPE does nothing from now on: Ctrl-C also ends the `tee` that reads a
 * run's log, and the run must live to write its checkpoint. Not for programs
 * whose output is their purpose. */
enum err stop_outlive_readers(void);
/* The number of the first signal that asked to stop; 0: none. */
int stop_requested(void);
/* For time limits found otherwise, and for tests. */
void stop_request(int signal_number);

#endif
