/* tessera-ckpt reach: which nodes answer on the network. Lines "NODE ADDRESS" on stdin;
 * of those that can be asked "NODE here" or "NODE silent" is printed. */
#include "src/cmd/ckpt_cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/job/reach.h"

#define LINES_BYTES_MAX ((size_t)16 << 20)

enum err ckpt_cmd_reach(struct ckpt_cmd *cmd)
{
    enum err rc = ERR_OK;
    struct reach_host *hosts = NULL;
    int count = 0, room = 0;
    char *text = NULL, *lines, *line;
    size_t bytes = 0;
    (void)cmd;
    TRY_OUT(fsio_read_file("/dev/stdin", LINES_BYTES_MAX, &text, &bytes));
    for (lines = text; (line = strsep(&lines, "\n")) != NULL;) {
        const char *name = strsep(&line, " ");
        if (*name == '\0')
            continue;
        TRY_OUT(array_room(&hosts, &room, count + 1));
        hosts[count++] = (struct reach_host){
            .name = name, .address = line != NULL && *line != '\0' ? line : name
        };
    }
    reach_ask(hosts, count, REACH_PORT);
    for (int i = 0; i < count; i++)
        if (hosts[i].answer != REACH_UNKNOWN)
            printf("%s %s\n", hosts[i].name,
                   hosts[i].answer == REACH_HERE ? "here" : "silent");
out:
    free(hosts);
    free(text);
    return rc;
}
