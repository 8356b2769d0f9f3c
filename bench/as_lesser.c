/* A library to preload that takes from a process what its processor has beyond AVX2 and FMA (AVX-512, AVX-VNNI and AMX),
 * or with -DKEEP_AVX512 what it has beyond AVX-512 (AMX).
 *
 *     cc -O2 -shared -fPIC -o as_avx2.so as_lesser.c && LD_PRELOAD=./as_avx2.so python3 ...
 *
 * So peers that choose their kernels by CPUID can be timed as on a lesser machine. Linux lets a process ask for a fault
 * at every CPUID instruction where the processor can (`cpuid_fault` in /proc/cpuinfo; Intel's since Ivy Bridge, AMD's
 * from Zen 4 on, if a hypervisor lets it); the handler executes it and takes the bits away. Threads inherit this, and
 * what is executed anew preloads anew. Where the processor cannot, the process ends with a line, unless AS_LESSER_COPIES
 * is set: then CPUID stays as it is, and only copies of libraries are answered in which lesser.py has put INVD, which no
 * program may execute and which is as long, in its place. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012, ALLOWED = 1, FAULTING = 0 };

/* Of leaf 7: AMX-BF16, AMX-TILE and AMX-INT8; of its second part AMX-FP16, and AMX-COMPLEX. */
#define AMX_EDX (1u << 22 | 1u << 24 | 1u << 25)
#define AMX_PART1_EAX (1u << 21)
#define AMX_PART1_EDX (1u << 8)

#ifdef KEEP_AVX512
#define LEAF7_EBX 0u
#define LEAF7_ECX 0u
#define LEAF7_EDX AMX_EDX
#define PART1_EAX AMX_PART1_EAX
#define PART1_EDX AMX_PART1_EDX
#else
/* F, DQ, IFMA, PF, ER, CD, BW and VL; VBMI, VBMI2, VNNI, BITALG and VPOPCNTDQ; 4VNNIW, 4FMAPS, VP2INTERSECT and FP16. Of
 * the second part: AVX-VNNI, AVX-512 BF16 and AVX-IFMA; AVX-VNNI-INT8, AVX-NE-CONVERT, AVX-VNNI-INT16 and AVX10. */
#define LEAF7_EBX (1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31)
#define LEAF7_ECX (1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14)
#define LEAF7_EDX (AMX_EDX | 1u << 2 | 1u << 3 | 1u << 8 | 1u << 23)
#define PART1_EAX (AMX_PART1_EAX | 1u << 4 | 1u << 5 | 1u << 23)
#define PART1_EDX (AMX_PART1_EDX | 1u << 4 | 1u << 5 | 1u << 10 | 1u << 19)
#endif

static struct sigaction before;
static int is_faulting;

static void on_fault(int number, siginfo_t *info, void *context) {
    ucontext_t *user = context;
    greg_t *registers = user->uc_mcontext.gregs;
    const uint8_t *at = (const uint8_t *)registers[REG_RIP];
    if (info->si_code != SI_KERNEL || at[0] != 0x0f || (at[1] != 0xa2 && at[1] != 0x08)) {
        /* A fault of the program's own: it meets what was there before. */
        sigaction(number, &before, NULL);
        return;
    }
    uint32_t leaf = (uint32_t)registers[REG_RAX], part = (uint32_t)registers[REG_RCX];
    uint32_t eax = leaf, ebx, ecx = part, edx;
    if (is_faulting) syscall(SYS_arch_prctl, SET_CPUID, ALLOWED);
    __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    if (is_faulting) syscall(SYS_arch_prctl, SET_CPUID, FAULTING);
    if (leaf == 7 && part == 0) {
        ebx &= ~LEAF7_EBX;
        ecx &= ~LEAF7_ECX;
        edx &= ~LEAF7_EDX;
    } else if (leaf == 7 && part == 1) {
        eax &= ~PART1_EAX;
        edx &= ~PART1_EDX;
    } else if (leaf == 0x1d || leaf == 0x1e || leaf == 0x24) {
        eax = ebx = ecx = edx = 0;
    }
    registers[REG_RAX] = eax;
    registers[REG_RBX] = ebx;
    registers[REG_RCX] = ecx;
    registers[REG_RDX] = edx;
    registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    is_faulting = syscall(SYS_arch_prctl, SET_CPUID, FAULTING) == 0;
    if (sigaction(SIGSEGV, &action, &before) != 0 || (!is_faulting && !getenv("AS_LESSER_COPIES"))) {
        fprintf(stderr, "as_lesser: this processor or kernel cannot hide what it has (no cpuid_fault)\n");
        _exit(3);
    }
}
