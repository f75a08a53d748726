/* Tensors in the memory of a GPU; copies, graphs and events on CUDA's streams.
 */
#include "kernels/cuda/device/cuda_device.h"

#include <stdio.h>

static enum err use(int local_rank)
{
    int device;
    return cuda_device_use(local_rank, &device);
}

static enum err identify(char *text, size_t bytes)
{
    struct cuda_device_info info;
    enum err rc = cuda_device_info(&info);
    snprintf(text, bytes, "%s", rc == ERR_OK ? info.bus : "");
    return rc;
}

static enum err used(size_t *bytes)
{
    struct cuda_device_info info;
    enum err rc = cuda_device_info(&info);
    *bytes = info.bytes_total - info.bytes_free;
    return rc;
}

static size_t available(void)
{
    struct cuda_device_info info;
    return cuda_device_info(&info) == ERR_OK ? info.bytes_free : 0;
}

static enum err event_create(void **event)
{
    return cuda_device_event_create(false, event);
}

static enum err event_create_timed(void **event)
{
    return cuda_device_event_create(true, event);
}

const struct kernel_memory cuda_memory = {
    .device = true,
    .use = use,
    .identify = identify,
    .visible = cuda_device_count,
    .used = used,
    .available = available,
    .stream_create = cuda_device_stream_create,
    .stream_destroy = cuda_device_stream_destroy,
    .tensors_create = cuda_device_tensors_create,
    .tensors_destroy = cuda_device_tensors_destroy,
    .host_create = cuda_device_host_create,
    .host_destroy = cuda_device_host_destroy,
    .upload = cuda_device_upload,
    .download = cuda_device_download,
    .copy = cuda_device_copy,
    .wait = cuda_device_stream_wait,
    .capture_begin = cuda_device_capture_begin,
    .capture_end = cuda_device_capture_end,
    .graph_launch = cuda_device_graph_launch,
    .graph_destroy = cuda_device_graph_destroy,
    .event_create = event_create,
    .event_destroy = cuda_device_event_destroy,
    .event_record = cuda_device_event_record,
    .event_await = cuda_device_event_await,
    .event_wait = cuda_device_event_wait,
    .event_done = cuda_device_event_done,
    .event_create_timed = event_create_timed,
    .event_elapsed = cuda_device_event_elapsed,
};
