#include "tests/cuda_dnn_fake.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct fake_dnn fake_dnn;

/* What a descriptor remembers. */
struct fake {
    cudnnBackendDescriptorType_t type;
    bool finished;
    int engine; /* of a configuration, and of a plan its configuration's */
    int64_t count;
    int64_t ids[FAKE_DNN_POINTERS];
    void *pointers[FAKE_DNN_POINTERS];
    void *workspace;
};

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

static cudnnStatus_t get(cudnnBackendDescriptor_t descriptor,
                         cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t most,
                         int64_t *count, void *values)
{
    (void)descriptor;
    (void)type;
    *count = 1;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        memcpy(values, &fake_dnn.workspace, sizeof fake_dnn.workspace);
    if (name != CUDNN_ATTR_ENGINEHEUR_RESULTS)
        return CUDNN_STATUS_SUCCESS;
    *count = fake_dnn.engines;
    for (int64_t i = 0; i < most && i < fake_dnn.engines; i++)
        ((struct fake **)values)[i]->engine = (int)i;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor)
{
    struct fake *done = descriptor;
    if (done->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
        done->engine == 0)
        return CUDNN_STATUS_NOT_SUPPORTED;
    fake_dnn.plans += done->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
    done->finished = true;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t execute(cudnnHandle_t handle,
                             cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack)
{
    const struct fake *given = pack;
    if (handle != (cudnnHandle_t)&fake_dnn || plan == NULL || !given->finished)
        return CUDNN_STATUS_BAD_PARAM;
    fake_dnn.runs++;
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
