/* Builds, plans and runs graphs of cuDNN's backend interface. It knows tensors
 * and operations, but not attention.
 *
 * All in that interface is a descriptor: made, given attributes by number, type
 * and count, and finalized, after which it may be an attribute of another.
 * Tensors are those of operations, operations those of the graph, the graph that
 * of the heuristics; these propose engines in the order in which they expect
 * them to be fast, and an engine becomes a plan, which compiles a kernel for the
 * device. What is wrong with a graph shows late, when no engine takes it, and
 * cuDNN's log (CUDNN_LOGLEVEL_DBG) is the only one to say why.
 *
 * Each of these calls may fail. So that whoever builds a graph can write it
 * down like a formula, the first failure is kept and makes the rest do
 * nothing; it is returned when the plan is made. */
#include "kernels/cuda/libraries/cuda_dnn_graph.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

#define TENSORS_MAX 64
#define OPS_MAX 64
#define PARTS_MAX 64 /* descriptors that operations are made of */
#define ENGINES_MAX 8
#define KNOBS_MAX 32
#define DIMS 4

struct cuda_dnn_graph {
    const struct cuda_dnn_library *library;
    cudnnBackendDescriptor_t tensors[TENSORS_MAX], ops[OPS_MAX],
        parts[PARTS_MAX];
    int tensor_count, op_count, part_count;
    cudnnBackendDescriptor_t device, graph, heuristics, plan;
    int64_t workspace;
    struct err_kept failed; /* first */
    struct err_kept
        refused; /* why the engine that is asked for makes no plan */
};

/* --- descriptors --- */

static void keep(struct cuda_dnn_graph *graph, cudnnStatus_t status,
                 const char *what)
{
    enum err rc = cuda_dnn_library_error(graph->library, status, what);
    if (graph->failed.code == ERR_OK && rc != ERR_OK)
        err_keep(&graph->failed, rc);
}

static cudnnBackendDescriptor_t make(struct cuda_dnn_graph *graph,
                                     cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (graph->failed.code == ERR_OK)
        keep(graph, graph->library->desc_create(type, &made),
             "making a descriptor");
    return made;
}

static void set(struct cuda_dnn_graph *graph, cudnnBackendDescriptor_t on,
                cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count,
                const void *values)
{
    if (graph->failed.code == ERR_OK)
        keep(graph, graph->library->set(on, name, type, count, values),
             "setting an attribute");
}

static void set_desc(struct cuda_dnn_graph *graph, cudnnBackendDescriptor_t on,
                     cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t value)
{
    set(graph, on, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void set_tensor(struct cuda_dnn_graph *graph,
                       cudnnBackendDescriptor_t on,
                       cudnnBackendAttributeName_t name, int tensor)
{
    if (graph->failed.code != ERR_OK)
        return;
    assert(tensor >= 0 && tensor < graph->tensor_count);
    set_desc(graph, on, name, graph->tensors[tensor]);
}

static void set_type(struct cuda_dnn_graph *graph, cudnnBackendDescriptor_t on,
                     cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
    set(graph, on, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void finish(struct cuda_dnn_graph *graph, cudnnBackendDescriptor_t what,
                   const char *text)
{
    if (graph->failed.code == ERR_OK)
        keep(graph, graph->library->finalize(what), text);
}

static cudnnBackendDescriptor_t make_part(struct cuda_dnn_graph *graph,
                                          cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t part = make(graph, type);
    assert(graph->part_count < PARTS_MAX);
    if (part != NULL)
        graph->parts[graph->part_count++] = part;
    return part;
}

static cudnnBackendDescriptor_t make_op(struct cuda_dnn_graph *graph,
                                        cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t op = make(graph, type);
    assert(graph->op_count < OPS_MAX);
    if (op != NULL)
        graph->ops[graph->op_count++] = op;
    return op;
}

enum err cuda_dnn_graph_create(const struct cuda_dnn_library *library,
                               struct cuda_dnn_graph **out)
{
    TRY(new_zeroed(out, 1));
    (*out)->library = library;
    return ERR_OK;
}

static void drop(const struct cuda_dnn_graph *graph,
                 cudnnBackendDescriptor_t what)
{
    if (what != NULL)
        (void)graph->library->desc_destroy(what);
}

void cuda_dnn_graph_destroy(struct cuda_dnn_graph *graph)
{
    if (graph == NULL)
        return;
    drop(graph, graph->plan);
    drop(graph, graph->heuristics);
    drop(graph, graph->graph);
    drop(graph, graph->device);
    for (int i = 0; i < graph->op_count; i++)
        drop(graph, graph->ops[i]);
    for (int i = 0; i < graph->part_count; i++)
        drop(graph, graph->parts[i]);
    for (int i = 0; i < graph->tensor_count; i++)
        drop(graph, graph->tensors[i]);
    free(graph);
}

/* --- tensors --- */

struct cuda_dnn_shape cuda_dnn_packed(int64_t a, int64_t b, int64_t c,
                                      int64_t d)
{
    return (struct cuda_dnn_shape){ { a, b, c, d },
                                    { b * c * d, c * d, d, 1 } };
}

static int add_tensor(struct cuda_dnn_graph *graph, cudnnDataType_t type,
                      const struct cuda_dnn_shape *shape, int64_t id,
                      bool by_value)
{
    cudnnBackendDescriptor_t tensor =
        make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int number = graph->tensor_count;
    /* numbers of a row or head may begin anywhere, rows of elements not */
    int64_t alignment = type == CUDNN_DATA_FLOAT ? 4 : 16;
    bool inner = id == 0;
    /* those without memory need numbers, too, that nobody else has */
    int64_t unique = inner ? 1000 + number : id;
    assert(number < TENSORS_MAX && id < 1000);
    if (tensor == NULL)
        return -1;
    graph->tensors[graph->tensor_count++] = tensor;
    set_type(graph, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set(graph, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DIMS,
        shape->dims);
    set(graph, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DIMS,
        shape->strides);
    set(graph, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1,
        &unique);
    set(graph, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
        &alignment);
    set(graph, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
        &inner);
    set(graph, tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
        &by_value);
    finish(graph, tensor, "describing a tensor");
    return number;
}

int cuda_dnn_tensor(struct cuda_dnn_graph *graph, cudnnDataType_t type,
                    const struct cuda_dnn_shape *shape, int64_t id)
{
    return add_tensor(graph, type, shape, id, false);
}

int cuda_dnn_scalar(struct cuda_dnn_graph *graph, int64_t id)
{
    struct cuda_dnn_shape one = cuda_dnn_packed(1, 1, 1, 1);
    assert(id > 0);
    return add_tensor(graph, CUDNN_DATA_FLOAT, &one, id, true);
}

/* --- operations --- */

static void pointwise(struct cuda_dnn_graph *graph, cudnnPointwiseMode_t mode,
                      int64_t axis, int x, int b, int t, int y)
{
    cudnnBackendDescriptor_t part =
        make_part(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnBackendDescriptor_t op =
        make_op(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(graph, part, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
        &mode);
    set_type(graph, part, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (axis >= 0)
        set(graph, part, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(graph, part, "describing an elementwise operation");
    set_desc(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b >= 0)
        set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t >= 0)
        set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish(graph, op, "adding an elementwise operation");
}

void cuda_dnn_pointwise(struct cuda_dnn_graph *graph, cudnnPointwiseMode_t mode,
                        int x, int b, int y)
{
    pointwise(graph, mode, -1, x, b, -1, y);
}

void cuda_dnn_index(struct cuda_dnn_graph *graph, int axis, int x, int y)
{
    pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, axis, x, -1, -1, y);
}

void cuda_dnn_select(struct cuda_dnn_graph *graph, int x, int b, int t, int y)
{
    pointwise(graph, CUDNN_POINTWISE_BINARY_SELECT, -1, x, b, t, y);
}

void cuda_dnn_reduce(struct cuda_dnn_graph *graph, cudnnReduceTensorOp_t op,
                     int x, int y)
{
    cudnnBackendDescriptor_t part =
        make_part(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    cudnnBackendDescriptor_t reduce =
        make_op(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(graph, part, CUDNN_ATTR_REDUCTION_OPERATOR,
        CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    set_type(graph, part, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(graph, part, "describing a reduction");
    set_desc(graph, reduce, CUDNN_ATTR_OPERATION_REDUCTION_DESC, part);
    set_tensor(graph, reduce, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(graph, reduce, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish(graph, reduce, "adding a reduction");
}

void cuda_dnn_matmul(struct cuda_dnn_graph *graph, int a, int b, int c)
{
    cudnnBackendDescriptor_t part =
        make_part(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    cudnnBackendDescriptor_t op =
        make_op(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_type(graph, part, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(graph, part, "describing a product");
    set_desc(graph, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, part);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    finish(graph, op, "adding a product");
}

void cuda_dnn_transpose(struct cuda_dnn_graph *graph, int x, int y)
{
    cudnnBackendDescriptor_t op =
        make_op(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_tensor(graph, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish(graph, op, "adding a transposition");
}

/* --- plans --- */

/* The GPU of the handle; or one that is described in JSON, so that plans for it
 * can be made where there is none. */
static void describe_device(struct cuda_dnn_graph *graph, cudnnHandle_t handle,
                            const char *device)
{
    graph->device = make(graph, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    if (device != NULL)
        set(graph, graph->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
            CUDNN_TYPE_CHAR, (int64_t)strlen(device) + 1, device);
    else
        set(graph, graph->device, CUDNN_ATTR_DEVICEPROP_HANDLE,
            CUDNN_TYPE_HANDLE, 1, &handle);
    finish(graph, graph->device, "describing a device");
}

/* Mode A is the one that is quick and knows most patterns; engines come in the
 * order of the speed that is expected of them. */
static void find_engines(struct cuda_dnn_graph *graph)
{
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    graph->graph = make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
        CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->op_count, graph->ops);
    finish(graph, graph->graph, "making a graph");
    graph->heuristics = make(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_desc(graph, graph->heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
             graph->graph);
    set(graph, graph->heuristics, CUDNN_ATTR_ENGINEHEUR_MODE,
        CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_desc(graph, graph->heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
             graph->device);
    finish(graph, graph->heuristics, "looking for engines");
}

/* "?" where cuDNN does not say it, or too much. */
static void name_engine(struct cuda_dnn_graph *graph,
                        cudnnBackendDescriptor_t config, char *name)
{
    const struct cuda_dnn_library *library = graph->library;
    cudnnBackendDescriptor_t knobs[KNOBS_MAX] = { NULL };
    cudnnBackendDescriptor_t engine =
        make(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t got = 0, count = 0, number = 0, value = 0;
    cudnnBackendKnobType_t type = 0;
    for (int i = 0; i < KNOBS_MAX; i++)
        knobs[i] = make(graph, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    bool told =
        graph->failed.code == ERR_OK &&
        library->get(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got,
                     &engine) == CUDNN_STATUS_SUCCESS &&
        library->get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                     1, &got, &number) == CUDNN_STATUS_SUCCESS &&
        library->get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS_MAX, &count,
                     knobs) == CUDNN_STATUS_SUCCESS &&
        count <= KNOBS_MAX;
    size_t used = (size_t)snprintf(name, CUDA_DNN_ENGINE_BYTES, "%lld",
                                   (long long)number);
    for (int i = 0; told && i < count; i++) {
        told = library->get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                            CUDNN_TYPE_KNOB_TYPE, 1, &got,
                            &type) == CUDNN_STATUS_SUCCESS &&
               library->get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                            CUDNN_TYPE_INT64, 1, &got,
                            &value) == CUDNN_STATUS_SUCCESS;
        used += (size_t)snprintf(name + used, CUDA_DNN_ENGINE_BYTES - used,
                                 ":%d=%lld", (int)type, (long long)value);
        told = told && used < CUDA_DNN_ENGINE_BYTES;
    }
    if (!told)
        strcpy(name, "?");
    for (int i = 0; i < KNOBS_MAX; i++)
        drop(graph, knobs[i]);
    drop(graph, engine);
}

static bool is_any(const char *engine)
{
    return strcmp(engine, CUDA_DNN_ENGINE_ANY) == 0;
}

/* Not the engine that is asked for, or one that does not work, is no failure
 * yet. */
static void try_engine(struct cuda_dnn_graph *graph,
                       cudnnBackendDescriptor_t config, char *engine)
{
    const struct cuda_dnn_library *library = graph->library;
    cudnnBackendDescriptor_t plan = NULL;
    char name[CUDA_DNN_ENGINE_BYTES];
    int64_t got = 0;
    name_engine(graph, config, name);
    if (!is_any(engine) && strcmp(name, engine) != 0)
        return;
    cudnnStatus_t status =
        library->desc_create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->device);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->finalize(plan);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                              CUDNN_TYPE_INT64, 1, &got, &graph->workspace);
    if (status != CUDNN_STATUS_SUCCESS) {
        err_keep(&graph->refused,
                 cuda_dnn_library_error(library, status, "making a plan"));
        drop(graph, plan);
        return;
    }
    graph->plan = plan;
    strcpy(engine, name);
}

enum err cuda_dnn_graph_plan(struct cuda_dnn_graph *graph, cudnnHandle_t handle,
                             const char *device, char *engine)
{
    const struct cuda_dnn_library *library = graph->library;
    cudnnBackendDescriptor_t configs[ENGINES_MAX] = { NULL };
    int64_t got = 0;
    assert(graph->graph == NULL && graph->plan == NULL); /* once */
    describe_device(graph, handle, device);
    find_engines(graph);
    for (int i = 0; i < ENGINES_MAX; i++)
        configs[i] = make(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (graph->failed.code == ERR_OK)
        keep(graph,
             library->get(graph->heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES_MAX, &got,
                          configs),
             "asking for engines");
    for (int64_t i = 0; i < got && i < ENGINES_MAX && graph->plan == NULL; i++)
        try_engine(graph, configs[i], engine);
    for (int i = 0; i < ENGINES_MAX; i++)
        drop(graph, configs[i]);
    if (graph->failed.code != ERR_OK)
        return err_again(&graph->failed);
    if (graph->plan != NULL)
        return ERR_OK;
    if (is_any(engine))
        return err_set(ERR_UNSUPPORTED,
                       "cuDNN: none of %lld engines makes a plan; "
                       "CUDNN_LOGLEVEL_DBG=2 says why",
                       (long long)got);
    if (graph->refused.code != ERR_OK)
        return err_set(ERR_UNSUPPORTED,
                       "cuDNN's engine %s is here and makes no plan: %s",
                       engine, graph->refused.text);
    return err_set(ERR_UNSUPPORTED,
                   "cuDNN: engine %s is none of the %lld that this GPU has: go "
                   "on with GPUs as it began on",
                   engine, (long long)got);
}

size_t cuda_dnn_graph_workspace(const struct cuda_dnn_graph *graph)
{
    return (size_t)graph->workspace;
}

/* Pointers are put in by id at each call, and the plan, which has none, serves
 * every layer and leaf. The pack of them is made for the call and dropped after it. */
enum err cuda_dnn_graph_run(const struct cuda_dnn_graph *graph,
                            cudnnHandle_t handle, int count, const int64_t *ids,
                            void *const *pointers, void *workspace)
{
    const struct cuda_dnn_library *library = graph->library;
    cudnnBackendDescriptor_t pack = NULL;
    assert(graph->plan != NULL && count > 0);
    cudnnStatus_t status =
        library->desc_create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                              CUDNN_TYPE_INT64, count, ids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                              CUDNN_TYPE_VOID_PTR, count, pointers);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                              CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->finalize(pack);
    if (status == CUDNN_STATUS_SUCCESS)
        status = library->execute(handle, graph->plan, pack);
    drop(graph, pack);
    return cuda_dnn_library_error(library, status, "running a graph");
}
