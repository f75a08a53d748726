/* Opens libraries by a list of their functions. */
#include "src/base/library.h"

#include <assert.h>
#include <dlfcn.h>
#include <string.h>

enum err library_open(const struct library *library, void *table, size_t bytes)
{
    int keep = library->unloads ? 0 : RTLD_NODELETE;
    memset(table, 0, bytes);
    void *opened = dlopen(library->file, RTLD_NOW | RTLD_LOCAL | keep);
    if (opened == NULL)
        return err_set(ERR_UNSUPPORTED, "%s%s; %s", library->name, dlerror(),
                       library->missing);
    memcpy(table, &opened, sizeof opened);
    for (int i = 0; i < library->count; i++) {
        const struct library_member *member = &library->members[i];
        void *symbol = dlsym(opened, member->symbol);
        assert(member->offset >= sizeof opened &&
               member->offset + sizeof symbol <= bytes);
        memcpy((char *)table + member->offset, &symbol, sizeof symbol);
        if (symbol != NULL || member->optional)
            continue;
        library_close(table, bytes);
        return err_set(ERR_UNSUPPORTED, "%s%s lacks %s; %s", library->name,
                       library->file, member->symbol, library->old);
    }
    return ERR_OK;
}

void library_close(void *table, size_t bytes)
{
    void *opened;
    memcpy(&opened, table, sizeof opened);
    if (opened != NULL)
        (void)dlclose(opened);
    memset(table, 0, bytes);
}
