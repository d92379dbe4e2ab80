#!/usr/bin/env python3
"""The rules of budgets_test.py, on texts as cuobjdump prints them."""

import collections
import unittest

import budgets_test as budgets

SYMBOL = "_ZN6tactus7compute4cuda40_GLOBAL__N__9ba9994e_8_dense_cu_d306131810NormKernelI6__halfEEvNS1_6GlobalIKfEEl"
USAGE = f"""
member /build/libkernels.a:rows.cu.o:
Resource usage:
 Common:
  GLOBAL:0
 Function {SYMBOL}:
  REG:33 STACK:0 SHARED:64 LOCAL:0 CONSTANT[0]:417 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function {SYMBOL.replace("6__half", "f")}:
  REG:30 STACK:0 SHARED:128 LOCAL:0 CONSTANT[0]:417 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
CODE = f"""
member /build/libkernels.a:rows.cu.o:
        Function : {SYMBOL}
        /*0260*/                   LDG.E.128.CONSTANT R6, desc[UR4][R6.64] ;      /* 0x0000000406067981 */
        /*0270*/                   LDSM.16.M88.4 R8, [R12] ;
        Function : {SYMBOL.replace("6__half", "f")}
        /*0260*/                   HMMA.16816.F32.BF16 R6, R4, R8, R6 ;
        /*0280*/                   LDG.E R6, desc[UR4][R6.64] ;
"""


class BudgetsTest(unittest.TestCase):
    def setUp(self):
        self.kernels = collections.defaultdict(budgets.Kernel)
        budgets.read_usage(USAGE, "sm_90a", self.kernels)
        budgets.read_code(CODE, self.kernels)

    def faults(self, table):
        return budgets.faults(self.kernels, budgets.read_table(table))

    def test_usage_is_the_most_of_all_types(self):
        self.assertEqual(list(self.kernels), ["rows/NormKernel"])
        kernel = self.kernels["rows/NormKernel"]
        self.assertEqual((kernel.registers, kernel.shared, kernel.stack), (33, 128, 0))
        self.assertEqual(kernel.contains, {"ld.nc", "ldmatrix", "mma"})

    def test_shared_memory_that_the_compiler_keeps_does_not_count(self):
        for architecture, shared in ("sm_100a", 276), ("sm_90a", 276), ("sm_89", 1300):
            kernels = collections.defaultdict(budgets.Kernel)
            budgets.read_usage(USAGE.replace("SHARED:128", "SHARED:1300"), architecture, kernels)
            self.assertEqual(kernels["rows/NormKernel"].shared, shared, architecture)

    def test_kernel_within_its_budget_has_no_fault(self):
        self.assertEqual(self.faults("rows/NormKernel 40 128 mma ld.nc  # a comment"), [])

    def test_each_excess_is_a_fault(self):
        found = self.faults("rows/NormKernel 32 64 cp.async")
        self.assertEqual(len(found), 3)
        self.assertIn("33 registers on sm_90a, budget 32", found[0])
        self.assertIn("128 bytes of shared memory, budget 64", found[1])
        self.assertIn("no cp.async", found[2])

    def test_stack_is_a_fault_whatever_the_budget(self):
        budgets.read_usage(USAGE.replace("STACK:0", "STACK:16"), "sm_80", self.kernels)
        self.assertIn("a stack of 16 bytes", self.faults("rows/NormKernel 255 9999")[0])

    def test_local_memory_is_a_fault_too(self):
        budgets.read_usage(USAGE.replace("LOCAL:0", "LOCAL:8"), "sm_80", self.kernels)
        self.assertIn("a stack of 8 bytes", self.faults("rows/NormKernel 255 9999")[0])

    def test_new_kernel_gets_a_row_to_copy_and_an_old_row_is_named(self):
        found = self.faults("rows/Gone 8 0")
        self.assertEqual(len(found), 2)
        self.assertIn("rows/NormKernel                                    40     128  mma ldmatrix ld.nc", found[0])
        self.assertIn("rows/Gone, which is no kernel", found[1])

    def test_names_of_functions_outside_namespaces_are_read_too(self):
        self.assertEqual(budgets.name_of("_Z10EmptyStepsPfi"), "EmptySteps")
        self.assertEqual(budgets.name_of("plain"), "plain")


if __name__ == "__main__":
    unittest.main()
