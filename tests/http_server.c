/* The tests' HTTP server as a program: http_server FOLDER RULES. It prints its
 * port, and the number of requests into RULES.count, that of faults by chance into
 * RULES.faults; rules are read from the file RULES whenever it changes. */
#include "tests/http_server.h"

int main(int argc, char **argv)
{
    static struct http_server server;
    char path[512], made[520], text[2048];
    if (argc != 3)
        return 64;
    http_server_start(&server, argv[1]);
    printf("%d\n", server.port);
    fflush(stdout);
    snprintf(made, sizeof made, "%s.made", argv[2]);
    for (;;) {
        FILE *rules = fopen(argv[2], "r");
        size_t bytes =
            rules != NULL ? fread(text, 1, sizeof text - 1, rules) : 0;
        if (rules != NULL)
            fclose(rules);
        text[bytes] = '\0';
        http_server_rules(&server, text);
        for (int f = 0; f < 2; f++) { /* nobody reads half a number */
            snprintf(path, sizeof path, "%s.%s", argv[2],
                     f == 0 ? "count" : "faults");
            FILE *count = fopen(made, "w");
            if (count != NULL) {
                fprintf(count, "%d\n",
                        f == 0 ? server.requests : server.faults);
                fclose(count);
                rename(made, path);
            }
        }
        usleep(20000);
    }
}
