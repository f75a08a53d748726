/* Writes what a model has said. */
#include "src/cmd/generate_show.h"

#include <stdio.h>
#include <unistd.h>

#include "src/text/visible.h"

bool generate_show_terminal(void)
{
    return isatty(STDOUT_FILENO) == 1;
}

static enum err show_bytes(const void *text, size_t bytes)
{
    if (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0)
        return err_errno("standard output");
    return ERR_OK;
}

enum err generate_show(const char *text, size_t bytes)
{
    struct buffer visible = { 0 };
    if (!generate_show_terminal())
        return show_bytes(text, bytes);
    enum err rc = visible_add(text, bytes, &visible);
    if (rc == ERR_OK && visible.bytes > 0)
        rc = show_bytes(visible.data, visible.bytes);
    buffer_free(&visible);
    return rc;
}
