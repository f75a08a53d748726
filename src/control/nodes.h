/* Which of a job's nodes train: a pure function of what their checks have told.
 *
 * Slurm lends a job nodes and knows little of what can be wrong with them. Before
 * an attempt each looks at itself, and before the first one they look at each
 * other by twos. Who is bad is left out; who is warned of in this job stands last,
 * or was bad or slow lately, so that a spare takes its place; who has told nothing is not
 * used, but asked again where nodes are wanting, since it may have been busy with
 * what was there before. Between attempts who is suspect is asked only where the
 * others are too few: a node that is dead, and not yet to Slurm, keeps the check
 * waiting. It is blamed for nothing.
 *
 *     begin -> check -> pairs -> go
 *              |   \-> nodes are wanting: those without a verdict again, twice
 *              \-> nobody has told what it is: the same, twice
 *
 * nodes_next() says which nodes are to be asked; who does it calls again with what
 * came of it. At the end each node of the job is in one place. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum nodes_place {
    NODES_AWAY,    /* Slurm lets nothing begin there */
    NODES_UNKNOWN, /* it gave no verdict */
    NODES_BAD,
    NODES_GOOD,
};

enum nodes_verdict { NODES_UNSURE, NODES_OK, NODES_WARN, NODES_SICK };
extern const char *const nodes_verdict_names[]; /* of a verdict's JSON */

/* Texts are the caller's. */
struct nodes_node {
    const char *name;
    bool allocated; /* the job has it; who is not is remembered only */
    bool usable;    /* as Slurm says */
    bool excluded;  /* it was bad lately, before this job began */
    bool warned;    /* of it, in this job */
    bool was_bad;   /* in this job */
    bool slow;      /* a run has left it lately for a spare */
    bool suspect;   /* others did not hear it any more, or it told nothing */
    bool lost;      /* of these, who ended the last attempt */
    bool
        trained; /* the last attempt had it: its memory has what was saved there */
    bool asked; /* by the step at hand */
    enum nodes_place place;
    /* what came of that step; code NULL: nothing */
    enum nodes_verdict verdict;
    const char *code, *reason;
    bool judged; /* by it */
    bool given;  /* at the end: to be given back, or kept by the job */
    bool kept;
};

enum nodes_at { NODES_AT_BEGIN, NODES_AT_CHECK, NODES_AT_PAIRS };

struct nodes {
    struct nodes_node *list; /* in the order in which Slurm names them */
    int count;
    const char *host; /* the launch script's node; NULL: not known */
    int wanted;       /* nodes of an attempt */
    int wanted_min;   /* it goes on with no fewer */
    int quick;        /* 1: between two attempts, where every second counts */
    /* state of this check, zeros at first */
    int at, tries, again;
    /* of the step at hand: its end, 1 if it was late and ended, how long it was
     * waited for, and the last words about it, or where they are */
    int code, late, seconds;
    const char *log;
    char silence[512]; /* the reason of those who told nothing */
};

enum nodes_what {
    NODES_CHECK,   /* have those that are `asked` look at themselves */
    NODES_RESTART, /* the same, when what may have kept the step off has ended */
    NODES_AGAIN,   /* the same, since nodes are wanting */
    NODES_PAIRS,   /* at each other */
    NODES_GO,      /* it is over; those that are `given` go back to Slurm */
};
extern const char *const nodes_what_names[];

enum nodes_what nodes_next(struct nodes *nodes);

int nodes_count(const struct nodes *nodes, enum nodes_place place);
/* Numbers of the good ones in the order in which they are used; returns how many
 * there are. */
int nodes_order(const struct nodes *nodes, int *order);
/* Good ones beyond those that are wanted, neither bad nor slow lately: what a slow
 * node can be given up for. */
int nodes_spare(const struct nodes *nodes);
/* Are there others than those that were bad here, for the next start of the job?
 * Not if one was known to be bad before, and Slurm has given it again. */
bool nodes_elsewhere(const struct nodes *nodes);
/* The line of the ledger about a node that was judged, or NULL; and what is said,
 * "" where there is nothing to say. */
const char *nodes_event(const struct nodes_node *node);
void nodes_say(const struct nodes_node *node, char *out, size_t size);
