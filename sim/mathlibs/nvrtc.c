/* SPDX-License-Identifier: Apache-2.0 */
/* nvrtc: programs that compile to one zero byte, and keep their kernels' names. Owns: the programs, made by
 * the generated file. No lock: a program is its caller's. */
#include "sim/mathlibs/mathlib.h"

int nvrtcDestroyProgram(void **program);
int nvrtcGetLoweredName(void *program, const char *expression, const char **name);
int nvrtcGetPTX(void *program, char *image);
int nvrtcGetCUBIN(void *program, char *image);
int nvrtcGetProgramLog(void *program, char *log);

#pragma GCC visibility push(default)

int nvrtcDestroyProgram(void **program)
{
    mathlib_delete(*program);
    *program = NULL;
    return 0;
}

/* The simulated driver has a function of any name, so the expression is as good as a mangled one. */
int nvrtcGetLoweredName(void *program, const char *expression, const char **name)
{
    (void)program;
    *name = expression;
    return 0;
}

int nvrtcGetPTX(void *program, char *image)
{
    (void)program;
    *image = 0;
    return 0;
}

int nvrtcGetCUBIN(void *program, char *image)
{
    return nvrtcGetPTX(program, image);
}

int nvrtcGetProgramLog(void *program, char *log)
{
    return nvrtcGetPTX(program, log);
}

#pragma GCC visibility pop
