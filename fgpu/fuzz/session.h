/* The session that the fuzz targets of the hook are in, and what they set of the machine around it. */
#pragma once

#include "../src/region.h"

extern bool fuzz_simulated;          /* the clock is the simulated driver's */
extern uint64_t fuzz_clock;          /* otherwise */
extern void (*fuzz_meanwhile)(void); /* called in the middle of what the hook does */
extern void (*fuzz_asleep)(void);    /* and whenever it has slept, on the simulated driver's clock */
extern const char *fuzz_socket;      /* where the arbiter listens; NULL: nowhere */

/* Write the session's files, with that share of the second GPU's SMs, and map its account. */
struct region *session_region(const char *second_share);
/* As in a child of fork: the process holds nothing, and has not looked at anything yet. */
void session_forget(void);
/* Have the simulated driver there, on a clock of its own, and two GPUs of 8 GiB. */
void session_simulate(void);
