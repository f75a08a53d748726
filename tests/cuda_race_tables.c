/* For make racecheck: of the tables of ops only the CPU's best one, which tests
 * compare with, and the emulated one. Linked with --wrap=kernels_all. */
#include "kernels/kernels.h"

extern const struct kernels cuda_table_emulated;

const struct kernels *const *__real_kernels_all(void);
const struct kernels *const *__wrap_kernels_all(void);

const struct kernels *const *__wrap_kernels_all(void)
{
    static const struct kernels *tables[3];
    tables[0] = __real_kernels_all()[0];
    tables[1] = &cuda_table_emulated;
    return tables;
}
