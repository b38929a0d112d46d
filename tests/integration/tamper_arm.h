/*
 * The test's side of tamper.c: a broker under a keeper whose successors find what tamper_arm() has
 * said to spoil. GMBD_TAMPER_PROGRAM is the program in between. One for each test process.
 */
#pragma once

#include "tests/integration/harness.h"

/* harness_start_kept() with that program in between; harness_stop(). */
void tamper_start(struct harness *harness, const char *text, const char *const *environment);
void tamper_stop(struct harness *harness);

/* The next broker finds what is spoiled so, by lines as tamper.c has them. */
void tamper_arm(const char *what);
/* It was. */
void tamper_expect_done(void);

/* It is said in the log and to operators, in the same words; "" that there is nothing to say. */
void tamper_expect_said(const struct harness *harness, const char *text);
