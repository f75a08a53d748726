/* The stop flag: one of the three globals of the project. Signal handlers for
 * SIGUSR1 (time is nearly up), SIGTERM (preemption, scancel) and SIGHUP (the
 * terminal is closed; not under nohup) only set it; the training loop polls it,
 * all ranks agree, checkpoint, and exit with EXIT_REQUEUE. SIGINT sets it too; a
 * second SIGINT ends the process, but where stop_watch() is at work. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"

/* Reasons that are no signals. */
#define STOP_BY_FILE 1001
#define STOP_BY_TIME 1002
#define STOP_BY_SLOW 1003

enum err stop_install(void);
/* They end the process again, for who looks at the flag during a part of its work. */
void stop_uninstall(void);
/* SIGPIPE does nothing from now on: Ctrl-C also ends the `tee` that reads a
 * run's log, and the run must live to write its checkpoint. Not for programs
 * whose output is their purpose. */
enum err stop_outlive_readers(void);
/* The number of the first signal that asked to stop, or of another reason; 0:
 * none. */
int stop_requested(void);
bool stop_is_requested(void);
/* For reasons found otherwise, and for tests. */
void stop_request(int number);
/* "SIGINT (Ctrl-C)": for people. */
const char *stop_text(int number);
/* Requests STOP_BY_FILE where RUN/STOP is there; looks once a second. By one
 * thread. */
void stop_look_for_file(const char *run_dir);

/* From now on a thread answers each SIGINT in the log at once. What comes within
 * a second of another is the same one, as from a terminal and a parent; the
 * second only gets an answer, and the third ends the process by SIGINT, with an
 * event "stop" of code 130 in the ledger of stop_watch_run()'s run. */
enum err stop_watch(void);
/* run_dir: lent for good; NULL: none any more. */
void stop_watch_run(const char *run_dir, int attempt);
