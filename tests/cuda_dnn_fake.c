#include "tests/cuda_dnn_fake.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct fake_dnn fake_dnn;

/* Those of cuda_dnn_attention.c. */
enum { Q = 1, K, V, OUT, LSE, DOUT, DQ, DK, DV, DELTA, SLOPES };

struct fake_tensor {
    int64_t dims[4], strides[4];
};

/* What a descriptor remembers. */
struct fake {
    cudnnBackendDescriptorType_t type;
    bool finished;
    int engine; /* of a configuration, and of a plan its configuration's */
    int64_t id;
    struct fake_tensor tensor, tensors[FAKE_DNN_POINTERS]; /* a plan's, by id */
    int64_t count;
    int64_t ids[FAKE_DNN_POINTERS];
    void *pointers[FAKE_DNN_POINTERS];
    void *workspace;
};

/* Of the graph that is being made. */
static struct fake_tensor tensors[FAKE_DNN_POINTERS];

static size_t version(void)
{
    return fake_dnn.version;
}

static const char *status_name(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "FAKE_SUCCESS" : "FAKE_FAILURE";
}

static void last_error(char *text, size_t bytes)
{
    strncpy(text, "the fake's last words", bytes);
}

static cudnnStatus_t create(cudnnHandle_t *handle)
{
    *handle = (cudnnHandle_t)&fake_dnn;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(cudnnHandle_t handle)
{
    (void)handle;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void)handle;
    fake_dnn.stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t desc_create(cudnnBackendDescriptorType_t type,
                                 cudnnBackendDescriptor_t *descriptor)
{
    struct fake *made = calloc(1, sizeof *made);
    if (made == NULL)
        abort();
    made->type = type;
    fake_dnn.alive++;
    fake_dnn.made++;
    *descriptor = made;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t desc_destroy(cudnnBackendDescriptor_t descriptor)
{
    fake_dnn.alive--;
    free(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set(cudnnBackendDescriptor_t descriptor,
                         cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count,
                         const void *values)
{
    struct fake *on = descriptor;
    if (on->finished)
        return CUDNN_STATUS_BAD_PARAM;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        const struct fake *const *others = values;
        for (int64_t i = 0; i < count; i++)
            if (!others[i]->finished && others[i]->type != on->type &&
                others[i]->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
                return CUDNN_STATUS_BAD_PARAM;
        if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
            on->engine = others[0]->engine;
    }
    if (name == CUDNN_ATTR_TENSOR_UNIQUE_ID)
        memcpy(&on->id, values, sizeof on->id);
    if (name == CUDNN_ATTR_TENSOR_DIMENSIONS)
        memcpy(on->tensor.dims, values, sizeof on->tensor.dims);
    if (name == CUDNN_ATTR_TENSOR_STRIDES)
        memcpy(on->tensor.strides, values, sizeof on->tensor.strides);
    if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)
        memcpy(on->ids, values, (size_t)count * sizeof on->ids[0]);
    if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
        memcpy(on->pointers, values, (size_t)count * sizeof on->pointers[0]);
    if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
        memcpy(&on->workspace, values, sizeof on->workspace);
    else
        on->count = count;
    return CUDNN_STATUS_SUCCESS;
}

static int64_t workspace_of(const struct fake *plan)
{
    const int64_t *q = plan->tensors[Q].dims;
    int64_t times = fake_dnn.scores[plan->tensors[DOUT].dims[0] > 0];
    int64_t bytes = fake_dnn.workspace;
    if (times > 0)
        bytes += times * q[0] * q[1] * q[2] * q[2] * 2 + (1 << 19);
    return bytes;
}

/* Two knobs: 3 is the engine's number, 7 is 1. */
static cudnnStatus_t get(cudnnBackendDescriptor_t descriptor,
                         cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t most,
                         int64_t *count, void *values)
{
    const struct fake *on = descriptor;
    int64_t number = 0;
    cudnnBackendKnobType_t knob = on->id == 0 ? 3 : 7;
    (void)type;
    *count = 1;
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE)
        (*(struct fake **)values)->engine = on->engine;
    if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)
        for (*count = 0; *count < 2 && *count < most; ++*count) {
            ((struct fake **)values)[*count]->engine = on->engine;
            ((struct fake **)values)[*count]->id = *count;
        }
    if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)
        memcpy(values, &knob, sizeof knob);
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
        number = fake_dnn.first + on->engine;
    else if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)
        number = on->id == 0 ? on->engine : 1;
    else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        number = workspace_of(on);
    else if (name != CUDNN_ATTR_ENGINEHEUR_RESULTS)
        return CUDNN_STATUS_SUCCESS;
    if (name != CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        memcpy(values, &number, sizeof number);
        return CUDNN_STATUS_SUCCESS;
    }
    *count = fake_dnn.engines;
    for (int64_t i = 0; i < most && i < fake_dnn.engines; i++)
        ((struct fake **)values)[i]->engine = (int)i;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor)
{
    struct fake *done = descriptor;
    if (done->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        if (done->engine == 0)
            return CUDNN_STATUS_NOT_SUPPORTED;
        fake_dnn.plans++;
        memcpy(done->tensors, tensors, sizeof tensors);
        memset(tensors, 0, sizeof tensors);
    }
    if (done->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && done->id > 0 &&
        done->id < FAKE_DNN_POINTERS)
        tensors[done->id] = done->tensor;
    done->finished = true;
    return CUDNN_STATUS_SUCCESS;
}

/* --- a run's results --- */

struct run {
    const struct fake *plan, *pack;
};

static void *pointer_of(const struct run *run, int id)
{
    for (int64_t i = 0; i < run->pack->count; i++)
        if (run->pack->ids[i] == id)
            return run->pack->pointers[i];
    return NULL;
}

/* By sequence, head of queries, token and element: others are turned, or of
 * keys, each for several heads. */
static uint16_t *element(const struct run *run, int id, const int64_t *i)
{
    const struct fake_tensor *t = &run->plan->tensors[id];
    const int64_t *q = run->plan->tensors[Q].dims;
    bool turned = t->dims[2] != q[2];
    return (uint16_t *)pointer_of(run, id) + i[0] * t->strides[0] +
           i[1] * t->dims[1] / q[1] * t->strides[1] +
           i[2] * t->strides[turned ? 3 : 2] +
           i[3] * t->strides[turned ? 2 : 3];
}

static float *number(const struct run *run, int id, const int64_t *i)
{
    const int64_t *strides = run->plan->tensors[id].strides;
    return (float *)pointer_of(run, id) +
           (id == SLOPES ? 0 : i[0] * strides[0] + i[2] * strides[2]) +
           i[1] * strides[1];
}

static void compute(const struct run *run, const int64_t *i)
{
    uint16_t sum = (uint16_t)(*element(run, Q, i) + 3 * *element(run, K, i) +
                              5 * *element(run, V, i));
    if (pointer_of(run, SLOPES) != NULL)
        sum = (uint16_t)(sum + (int)*number(run, SLOPES, i));
    if (pointer_of(run, DOUT) == NULL) {
        *element(run, OUT, i) = sum;
        *number(run, LSE, i) = (float)sum;
        return;
    }
    sum = (uint16_t)(sum + 7 * *element(run, OUT, i) +
                     11 * *element(run, DOUT, i) + (int)*number(run, LSE, i));
    *number(run, DELTA, i) = (float)sum;
    *element(run, DQ, i) = sum;
    *element(run, DK, i) = (uint16_t)(*element(run, DK, i) * 13 + sum);
    *element(run, DV, i) = (uint16_t)(*element(run, DV, i) * 17 + sum);
}

static cudnnStatus_t execute(cudnnHandle_t handle,
                             cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack)
{
    const struct fake *given = pack;
    if (handle != (cudnnHandle_t)&fake_dnn || plan == NULL || !given->finished)
        return CUDNN_STATUS_BAD_PARAM;
    const struct run run = { plan, pack };
    const int64_t *q = run.plan->tensors[Q].dims;
    int64_t i[4] = { 0 };
    for (int64_t n = 0; fake_dnn.computes && n < q[0] * q[1] * q[2] * q[3];
         n++) {
        int64_t left = n;
        for (int axis = 3; axis >= 0; left /= q[axis--])
            i[axis] = left % q[axis];
        compute(&run, i);
    }
    fake_dnn.runs++;
    fake_dnn.engine = run.plan->engine;
    fake_dnn.count = given->count;
    memcpy(fake_dnn.ids, given->ids, sizeof given->ids);
    memcpy(fake_dnn.pointers, given->pointers, sizeof given->pointers);
    fake_dnn.used_workspace = given->workspace;
    return fake_dnn.run_status;
}

const struct cuda_dnn_library fake_dnn_library = {
    .version = version,
    .status_name = status_name,
    .last_error = last_error,
    .create = create,
    .destroy = destroy,
    .set_stream = set_stream,
    .desc_create = desc_create,
    .desc_destroy = desc_destroy,
    .set = set,
    .get = get,
    .finalize = finalize,
    .execute = execute,
};
