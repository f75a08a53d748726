/* What a node and this process on it use of processors, memory and network, from
 * /proc: the counters, of which two readings make a rate. */
#pragma once

struct node_usage {
    double process_s; /* processor time of this process, all threads */
    /* of all processors together, since they were started: what somebody used,
     * and with the idle rest; NaN: not known, as in what follows */
    double busy_s, all_s;
    double load;           /* processes that run or wait, over a minute */
    double received, sent; /* bytes of all interfaces but the loopback; not what
                              goes past the kernel, as RDMA does */
    double available;      /* bytes of memory (memory_available()) */
};

/* `root` is before the paths that are read, "" on this machine. About 0.1 ms. */
void node_usage_read(const char *root, struct node_usage *out);
