/* The ledger: RUN/ledger.jsonl, append-only JSON lines, one per event of an
 * attempt; each append is one write(2) and an fsync(2). What finds no room is
 * kept where the process does that (lines_keep()).
 * Events: "start" {attempt, job, restart, ranks, hosts, step}, "hardware"
 * {arithmetic, kernel_set (rank 0's), devices, exchange, algorithms, fallback,
 * step (where the attempt goes on), memory_planned (bytes of the rank that needs
 * most), threads (of a rank)}, "memory" {planned, peak (bytes, of the rank that
 * has taken most), device} at an attempt's end,
 * "commit" {step, bytes, seconds (writing and committing), stage_s (the copy
 * that training waited for)} or, by tessera-ckpt, {step, bytes, copy_s,
 * scavenged: true},
 * "commit-local" (as "commit", on the nodes), "save-failed" {step, error,
 * reason}, "settings" {step, changed: {key: [before, now]}, lr: [before, now] if
 * the learning rate jumps}, "weights" or "load" {setting, path, kind, dtype,
 * sha256 (of what names its contents), step and tokens (-1: not known), ignore,
 * fresh: names} when a run starts from another's, "plugins" {plugins: [{name,
 * version, path, options, sha256}]}, "data" {step, parts: as in a checkpoint's
 * state} when other data begin, "skip" {run_uuid, kind: "spike" or "nan", step, loss,
 * grad_norm (null: no number), batches: 1, batch (of the data), reason} when an
 * update is left out, "rollback" {run_uuid, kind, step, loss, grad_norm, from and to
 * (completed steps), first and batches (of the data, left out), number, reason}
 * when the run goes back, before it goes on from there, "hooks" {hooks: {EVENT: {called, failed, ended,
 * replaced}}} when commands of hooks.on_* did not go well, "tracking-lost"
 * {sink, records, reason} when a tracker has not
 * got them, "stop" {step, code, reason}, and those of the launch
 * script ("check", "exclude" and "node-warning" {node,
 * code, reason}, "restart", "requeue", "give-up"). Every line has "event",
 * "time" (seconds since the epoch, ms) and "attempt". */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "src/base/err.h"

/* Append one event; steals `fields` (a JSON object, may be NULL). */
enum err ledger_append(const char *run_dir, const char *event, int attempt,
                       json_t *fields);

/* All events of this name, oldest first and those included that the process
 * keeps, as a new array (json_decref); empty where there is no ledger. A torn
 * last line (power cut) is ignored and healed by the next append. */
enum err ledger_events(const char *run_dir, const char *name, json_t **out);

/* Number of the attempt that starts now: 1 + the "start" events so far. */
enum err ledger_next_attempt(const char *run_dir, int *attempt);
