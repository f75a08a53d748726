/* The stop flag: one of the two globals of the project. Signal handlers for
 * SIGUSR1 (time is nearly up) and SIGTERM (preemption, scancel) only set it;
 * the training loop polls it, all ranks agree on the step, checkpoint, and exit
 * with EXIT_REQUEUE. SIGINT sets it too; a second SIGINT ends the process. */
#ifndef TESSERA_JOB_STOP_H
#define TESSERA_JOB_STOP_H

#include "src/base/err.h"

enum err stop_install(void);
/* The number of the first signal that asked to stop; 0: none. */
int stop_requested(void);
/* For time limits found otherwise, and for tests. */
void stop_request(int signal_number);

#endif
