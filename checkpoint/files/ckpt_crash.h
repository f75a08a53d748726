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

/* The names in the order of the protocol, without those of a save to the nodes'
 * own folders; NULL-terminated. */
const char *const *ckpt_crash_names(void);
