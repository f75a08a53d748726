/* What a job does when an attempt of it has ended or could not begin: a pure
 * function of what is known.
 *
 * A job on a cluster meets dead nodes, time limits, preemptions, full disks and
 * its own mistakes, and the same end of a step may be any of them. What the
 * ranks wrote counts more than the code of the step, which is the highest of all
 * of them (an end that rank 0 told is one, whatever became of a rank that did not leave),
 * and the state of the job more than either: who was cancelled stays so.
 * Nothing may go on for ever without anybody knowing: three attempts in a row
 * that brought no checkpoint, and nothing else from which the next could go on further,
 * end the job, whatever ended them. Those that the loss of a node has ended are the
 * cluster's, and count only from the eleventh on.
 *
 *     ended -> state -> room -> count -> retry
 *                                    \-> scavenge -> state -> requeue
 *                                                         \-> end
 *
 * Where something is missing for the decision, job_next() says what to ask for or
 * to do; who does it calls again with the answer beside all that was known. So
 * there is no memory but the facts, and each decision can be made again from one
 * line (`tessera-ckpt next`). */
#pragma once

#include <stdbool.h>

enum job_ended {
    JOB_ITSELF,  /* the step, with `code` */
    JOB_NODE,    /* we ended it: nodes are lost, `detail` says which */
    JOB_START,   /* ranks did not find each other, `detail`: within what time */
    JOB_HANG,    /* no step came, `detail`: for how long */
    JOB_STOPPED, /* no attempt began: the job was asked to stop before */
    JOB_NODES,   /* none began: too few good nodes, `detail` says how many */
    JOB_HOST,    /* the node of the launch script is lost, `detail`: its name */
};
extern const char *const job_ended_names[];

enum job_answer { JOB_UNKNOWN, JOB_NO, JOB_YES };

/* Texts are the caller's; NULL: nothing, or not asked for yet. */
struct job_facts {
    enum job_ended ended;
    int code;
    const char *detail;
    const char *written; /* "CODE TEXT": the gravest words of a rank */
    const char *stop;    /* USR1, TERM or STOP: the job was asked to stop */
    bool stop_file;      /* RUN/STOP is there */
    /* the slow node that the run has ended it to leave; "all": to have all checked */
    const char *left;
    /* An end before the run was opened that is nobody's fault: JOB_START before all of
     * TESSERA_START_S was over, JOB_ITSELF where Slurm could not begin the step. */
    bool excused;
    bool opened;        /* the ranks had opened the run */
    bool advanced;      /* there is a newer checkpoint than before it */
    bool may_requeue;   /* Slurm's Requeue of the job */
    bool elsewhere;     /* JOB_NODES: the next start has others than the bad */
    int futile;         /* attempts in vain before this one, in a row */
    const char *silent; /* a node that the ranks did not hear any more */
    int silenced;  /* ended by such, without a checkpoint, since the last one */
    int unstarted; /* JOB_STOPPED by USR1 before this one, in a row */
    const char *newest; /* checkpoint, for whoever has to look */
    const char *job;    /* its name for Slurm */
    const char *run_dir;
    /* what came of what was asked for */
    const char *state;         /* of the job when the attempt ended */
    enum job_answer room;      /* in the file system of the run */
    bool room_came;            /* there was none at first */
    enum job_answer scavenged; /* a checkpoint that only the nodes had */
    const char *last_state;    /* directly before the requeue */
    enum job_answer requeued;
};

enum job_what {
    JOB_ASK,       /* for `state` */
    JOB_FIND_ROOM, /* wait until there is some: `room`, `room_came` */
    JOB_SCAVENGE,  /* save what only the nodes have: `scavenged` */
    JOB_ASK_AGAIN, /* for `last_state` */
    /* decisions: */
    JOB_RETRY,   /* the next attempt, in this job */
    JOB_REQUEUE, /* have Slurm do so, then end: `requeued` if it refuses */
    JOB_END,
};
extern const char *const job_what_names[];
static inline bool job_decided(enum job_what what)
{
    return what >= JOB_RETRY;
}

enum job_progress { JOB_NO_WORD, JOB_NULL, JOB_FALSE, JOB_TRUE };

struct job_decision {
    enum job_what what;
    int exit_code; /* of the job, see exit_code.h; JOB_RETRY: none */
    int futile;    /* attempts in vain in a row, with this one */
    int pause_s;   /* JOB_RETRY: before the next attempt */
    /* its line in the ledger; event NULL: none, the training has written it */
    const char *event;
    int code;
    enum job_progress progress;
    const char *silent; /* the node whose loss this was, where that is why it
                         * does not count; else NULL */
    char reason[640];
    char words[1024]; /* what is said, "" where the training has said it */
};

/* The reason of a requeue before an attempt began. */
#define JOB_UNSTARTED "asked to stop (USR1) before the start"

void job_next(const struct job_facts *facts, struct job_decision *out);
/* For one whose line could not be written: where it would go on, nobody could
 * count the attempts, so the job ends. */
void job_unwritten(const struct job_facts *facts, struct job_decision *out);
