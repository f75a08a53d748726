/* A library for LD_PRELOAD that makes file system calls fail as asked, lists
 * them, or remembers what a power cut would leave.
 *
 * Faults, while armed:
 *   SHIM_FAULT=CALL:ERROR:NTH[:always]  the NTH call (from 1) fails; "always":
 *                                       and every one after it
 *   SHIM_PATH=GLOB                      counts only calls on such paths
 *   SHIM_RANK=N                         only in this rank of an MPI job, and
 *                                       only its calls are listed
 *   SHIM_TRACE=FILE                     gets a line "CALL PATH" for every call
 * CALL is open, create (an open that may create), direct (one with O_DIRECT),
 * write, fallocate, fsync, rename, renameat2, mkdir, close, ftruncate, remove,
 * look (a file's or folder's existence, status, names; free room) or "any", which is all that change something. ERROR is a name as ENOSPC, or
 * SHORT: half of the bytes are written.
 *
 * SHIM_DELAY_MS=N, armed or not: calls that a metadata server would answer, on
 * such paths, take so much longer: all but write and close, fsync of a folder.
 *
 * SHIM_STORE=FOLDER and SHIM_ROOT=FOLDER: all that lies below ROOT at the start
 * is durable, later what was synced: a file's contents at its last fsync, a
 * folder's names at its last fsync. In STORE, ino/INODE holds the id of a file
 * or folder; data/ID is a file's durable contents; list/ID are the durable
 * names of a folder, as lines "ID NAME". */
#pragma once

#include <stdbool.h>

/* Called by the program, which finds them by weak symbols. */
void shim_arm(bool on);

/* Begin: everything below `root` is durable. */
void shim_store_begin(const char *store, const char *root);
/* A new file or folder was made at this path. */
void shim_store_made(const char *path);
/* The file or folder behind this path was synced. */
void shim_store_synced(const char *path);
