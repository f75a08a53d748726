/* Gradient reduction on one rank: the tree, its memory. */

#include "tests/reduce_fixture.h"
#include "tests/tap.h"

static void test_tree(struct comm *comm, struct comm_tensors *tensors,
                      int slots)
{
    int64_t elements = 2 * KERNEL_CHUNK;
    struct kernel_ctx ctx = { .threads = 1 };
    struct reduce *reduce = NULL;
    float *own;
    enum err rc = reduce_create(comm, tensors, &fixture_kernels, &ctx, elements,
                                NULL, slots, &reduce);
    int64_t wrong = -1;
    if (rc == ERR_OK)
        rc = fixture_slots(reduce, NULL, 0, 1, slots, elements, 1, 1);
    if (rc == ERR_OK)
        rc = reduce_finish(reduce, &own);
    if (rc == ERR_OK)
        wrong = fixture_wrong(own, 0, elements, slots, 1, 1);
    tap_is_int(wrong, 0, "%d slots: the bits of the serial tree", slots);
    reduce_destroy(reduce);
}

/* Were the values too tame, every order would give the same bits and the
 * tests could not fail. */
static void test_order_matters(void)
{
    int different = 0;
    for (int64_t i = 0; i < 1000; i++) {
        float sum = 0.0f;
        for (int s = 0; s < 7; s++)
            sum += fixture_value(1, s, i);
        different += !fixture_same_bits(sum, fixture_tree(1, 7, i));
    }
    tap_ok(different > 100, "another order gives other bits (%d of 1000)",
           different);
}

static void test_begin_again(struct comm *comm, struct comm_tensors *tensors)
{
    int64_t elements = KERNEL_CHUNK;
    struct kernel_ctx ctx = { .threads = 1 };
    struct reduce *reduce = NULL;
    float *own = NULL;
    int64_t wrong = -1;
    enum err rc = reduce_create(comm, tensors, &fixture_kernels, &ctx, elements,
                                NULL, 5, &reduce);
    reduce_begin(reduce, false);
    for (int s = 0; s < 3; s++) {
        float *gradient = reduce_slot(reduce);
        memset(gradient, 0, (size_t)elements * sizeof *gradient);
        gradient[s] = 1e30f;
        rc |= reduce_slot_done(reduce);
    }
    (void)reduce_slot(reduce);
    rc |= fixture_slots(reduce, NULL, 0, 1, 5, elements, 2, 1);
    rc |= reduce_finish(reduce, &own);
    if (rc == ERR_OK)
        wrong = fixture_wrong(own, 0, elements, 5, 2, 1);
    tap_is_int(wrong, 0, "an abandoned batch leaves nothing behind");
    reduce_destroy(reduce);
}

static void test_bytes(void)
{
    static const struct {
        int rank, ranks, slots, buffers;
    } cases[] = {
        { 0, 1, 1, 1 },  { 0, 1, 2, 2 },  { 0, 1, 8, 4 },   { 0, 1, 9, 4 },
        { 0, 4, 64, 5 }, { 3, 4, 64, 5 }, { 0, 64, 64, 1 }, { 1, 3, 9, 3 },
    };
    int64_t elements = (int64_t)1000 * KERNEL_CHUNK;
    int64_t arena = elements * (int64_t)sizeof(float);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct reduce_bytes bytes;
        reduce_plan(elements, NULL, cases[i].rank, cases[i].ranks,
                    cases[i].slots, &bytes);
        int64_t rest = (int64_t)bytes.total - cases[i].buffers * arena;
        int64_t receive = cases[i].ranks == 1 ? 0 : (int64_t)128 << 20;
        /* a node's ranks see at least one partial of each other rank */
        int64_t seen = arena / cases[i].ranks * (cases[i].ranks - 1);
        /* in whole huge pages of each partial */
        tap_ok(bytes.near >= (size_t)seen && bytes.near % 16 == 0,
               "on one node at least what is seen");
        tap_ok(rest > 0 && rest >= seen && rest < receive + 65536,
               "rank %d of %d, %d slots: %d gradient buffers", cases[i].rank,
               cases[i].ranks, cases[i].slots, cases[i].buffers);
    }
}

static void test_gather(struct comm_tensors *tensors)
{
    float arena[1] = { 3.0f };
    tap_ok(reduce_gather(tensors, 0, NULL, DTYPE_F32, arena) == ERR_OK &&
               arena[0] == 3.0f,
           "gather on one rank");
}

int main(void)
{
    static const int slots[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64 };
    struct comm *comm;
    struct comm_tensors *tensors;
    if (comm_create("self", NULL, NULL, 10.0, &comm) != ERR_OK ||
        comm_tensors_create(comm, &kernel_memory_cpu, NULL, EXCHANGE_AUTO,
                            &tensors) != ERR_OK) {
        tap_ok(false, "create: %s", err_text());
        return tap_done();
    }
    test_order_matters();
    for (unsigned i = 0; i < sizeof slots / sizeof slots[0]; i++)
        test_tree(comm, tensors, slots[i]);
    test_begin_again(comm, tensors);
    test_bytes();
    test_gather(tensors);
    comm_tensors_destroy(tensors);
    comm_destroy(comm);
    return tap_done();
}
