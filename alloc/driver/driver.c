/* SPDX-License-Identifier: Apache-2.0 */
/* driver: see driver.h. */
#include "alloc/driver/driver.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int version;
    bool required;
    size_t offset;
} table[] = {
#define X(name, version, required) {#name, version, required, offsetof(struct sm_driver, name)},
    SM_DRIVER_CALLS(X)
#undef X
};

const char *sm_driver_call_name(enum sm_driver_call call)
{
    return table[call].name;
}

const char *sm_driver_text(const struct sm_driver *driver, CUresult code, char *buffer, size_t capacity)
{
    const char *name = NULL, *text = NULL;
    if (driver->cuGetErrorName(code, &name) || !name)
        name = "unknown CUDA error";
    if (driver->cuGetErrorString(code, &text) || !text)
        text = "no text";
    snprintf(buffer, capacity, "%s (%d: %s)", name, (int)code, text);
    return buffer;
}

/* A member of the table as the address of an object pointer: POSIX lets function and data pointers be
 * converted. */
static void set_member(struct sm_driver *driver, size_t offset, void *function)
{
    memcpy((char *)driver + offset, &function, sizeof(function));
}

static void *find(sm_get_proc get_proc, const char *name, int version)
{
    void *function = NULL;
    CUdriverProcAddressQueryResult status;
    if (get_proc(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS)
        return NULL;
    return function;
}

seam_result sm_driver_fill(struct sm_driver *driver, sm_get_proc get_proc, struct sm_error *error)
{
    char text[160];
    CUresult code;
    memset(driver, 0, sizeof(*driver));
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        void *function = find(get_proc, table[i].name, table[i].version);
        if (!function && table[i].required)
            return sm_error_set(
                error, SEAM_E_NO_DRIVER,
                "the CUDA driver has no function %s (of CUDA %d.%d): it is too old, 12.0 or newer is "
                "needed",
                table[i].name, table[i].version / 1000, table[i].version % 1000 / 10);
        set_member(driver, table[i].offset, function);
    }
    set_member(driver, offsetof(struct sm_driver, capture_info),
               find(get_proc, "cuStreamGetCaptureInfo", 11030));
    code = SM_CALL(driver, cuInit, 0);
    if (code != CUDA_SUCCESS)
        return sm_error_set(error, SEAM_E_NO_DRIVER, "the CUDA driver could not be started: cuInit: %s",
                            sm_driver_text(driver, code, text, sizeof(text)));
    return SEAM_OK;
}

bool sm_driver_has_vmm(const struct sm_driver *driver)
{
    return driver->cuMemGetAllocationGranularity && driver->cuMemAddressReserve && driver->cuMemAddressFree &&
           driver->cuMemCreate && driver->cuMemRelease && driver->cuMemMap && driver->cuMemUnmap &&
           driver->cuMemSetAccess && driver->cuMemGetAccess;
}

seam_result sm_driver_open(struct sm_driver *driver, struct sm_error *error)
{
    void *symbol;
    sm_get_proc get_proc;
    seam_result result;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        return sm_error_set(error, SEAM_E_NO_DRIVER, "the CUDA driver was not found: %s", dlerror());
    symbol = dlsym(library, "cuGetProcAddress_v2");
    if (!symbol) {
        dlclose(library);
        return sm_error_set(
            error, SEAM_E_NO_DRIVER,
            "libcuda.so.1 has no cuGetProcAddress_v2: a driver of CUDA 12.0 or newer is needed");
    }
    memcpy(&get_proc, &symbol, sizeof(get_proc));
    result = sm_driver_fill(driver, get_proc, error);
    if (result)
        dlclose(library);
    else
        driver->library = library;
    return result;
}

void sm_driver_close(struct sm_driver *driver)
{
    if (driver->library)
        dlclose(driver->library);
    memset(driver, 0, sizeof(*driver));
}
