/* What a prolog, epilog or quick look knows of its node, from its beginning to its end. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "src/node/node_site.h"

#define NODE_END_S 45.0
#define NODE_TEXT_BYTES 512

enum node_state { NODE_OK, NODE_WARN, NODE_BAD, NODE_UNKNOWN };

struct node {
    const char *phase; /* what is done: a name of node_act()'s */
    char name[64];     /* as Slurm calls it */
    long job;          /* 0: none */
    uid_t uid;         /* of the job; of the epilog */
    gid_t gid;
    char here[1024]; /* the folder of this program, and of the check */
    struct node_site site;
    char wrong[1024];   /* settings that are wrong: nothing is drained; "" */
    bool settings_read; /* they are root's alone */
    uint32_t settings;  /* CRC32C of their file: which ones decided */
    double end_s;       /* clock_now() */
    /* of what is said (node_words.h) */
    double words_left_s;
    bool log_hangs, events_hang, syslog_hangs, notify_hangs;
    double begin_s; /* clock_now() */
    /* what the last look has found */
    enum node_state state;
    char reason[NODE_TEXT_BYTES], codes[NODE_TEXT_BYTES];
    char bad[NODE_TEXT_BYTES]; /* the checks that found it bad, with commas */
    int gpus;                  /* that it must have; 0: not known */
    bool shared;               /* another job is here, or that is not known */
};
