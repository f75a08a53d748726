/* What a ledger holds: its events, and the fields of each. Whoever writes one is
 * held to its row (ledger.h), so that a reader may rely on what stands here.
 *
 * A field is NAME:TYPE. NAME? may be missing, TYPE? may be null. Types: whole and
 * number, text, flag (true or false), list, object. Every line has "event",
 * "time" (seconds since the epoch, ms) and "attempt" besides. */
#pragma once

static const struct ledger_row {
    const char *event, *fields;
} ledger_rows[] = {
    /* of the training program, in the order in which an attempt has them */
    { "start", "job:whole restart:whole ranks:whole hosts:list "
               "node_ranks?:list version:text" }, /* of each host */
    /* of rank 0; where the attempt goes on, the bytes of the rank that needs
     * most, the threads of a rank, the seconds of each part of the start */
    { "hardware",
      "arithmetic:text kernel_set:text devices:text exchange:text "
      "algorithms:text fallback:text step:whole memory_planned:whole "
      "threads:whole exchange_why?:text start_s?:object" },
    /* changed: {key: [before, now]}; lr: [before, now] where it jumps */
    { "settings", "step:whole changed:object lr?:list eval_set?:list" },
/* a run starts from another's; sha256 of what names its contents, step and
     * tokens -1 where they are not known */
#define LEDGER_FROM                                                            \
    "setting:text path:text kind:text dtype:text sha256:text step:whole "      \
    "tokens:whole ignore:text fresh:list"
    { "weights", LEDGER_FROM },
    { "load", LEDGER_FROM },
    { "plugins", "plugins:list" }, /* {name, version, path, options, sha256} */
    { "data", "step:whole parts:list" }, /* parts as in a checkpoint's state */
    /* seconds: writing and committing; stage_s: the copy that training waited
     * for. What tessera-ckpt has saved from the nodes tells nothing of that. */
    { "commit", "step:whole bytes:whole seconds?:number stage_s?:number "
                "copy_s?:number scavenged?:flag" },
    { "commit-local", "step:whole bytes:whole seconds:number stage_s:number" },
    { "save-failed", "step:whole error:text reason:text" },
    /* a commit is in checkpoint.mirror, or is not */
    { "mirror", "step:whole bytes:whole seconds:number" },
    { "mirror-failed", "step:whole error:text reason:text" },
#define LEDGER_CAUSE                                                           \
    "run_uuid:text kind:text step:whole loss:number? grad_norm:number? "       \
    "reason:text batches:whole "
    /* an update is left out: kind "spike" or "nan", batch of the data */
    { "skip", LEDGER_CAUSE "batch:whole" },
    /* before the run goes on from there: from and to in completed steps, first
     * and batches of the data that is left out */
    { "rollback", LEDGER_CAUSE "from:whole to:whole first:whole number:whole" },
    /* kind: straggler (factor: its work / the median), loader (share of a step) or
     * rate (of the usual one; rank -1, node "all"); over: it is so no longer; action:
     * what is done about it (src/control/slow.h), "sweep" or "replace" the last of
     * its attempt */
    { "slow", "kind:text over:flag rank:whole node:text step:whole since:whole "
              "factor:number action?:text" },
    /* of tessera-health watch; fatal: the attempt ends */
    { "gpu-alert", "node:text code:text reason:text fatal:flag" },
    { "hooks", "hooks:object" }, /* EVENT: {called, failed, ended, replaced} */
    { "tracking-lost", "sink:text records:whole reason:text" },
    /* bytes of the rank that has taken most */
    { "memory", "planned:whole peak:whole device:flag" },
    /* by: "launch" where the launch script ends the job; apart: the ranks have
     * lost each other, and each leaves at once by itself */
    { "stop", "code:whole reason:text step?:whole by?:text progress?:flag? "
              "job?:whole apart?:flag" },
    /* of the launch script, between attempts; progress: has the attempt
     * committed a step? null: it could not be expected to */
    { "check", "job:whole phase:text tried:whole good:whole nodes:text "
               "seconds:whole" },
    { "exclude", "job:whole node:text code:text reason:text" },
    { "node-warning", "job:whole node:text code:text reason:text" },
    /* silent: the node whose loss has ended what brought no checkpoint */
    { "restart",
      "job:whole code:whole reason:text progress:flag? silent?:text" },
    { "requeue",
      "job:whole code:whole reason:text progress:flag? silent?:text" },
    { "give-up", "job:whole code:whole reason:text newest:text" },
};
