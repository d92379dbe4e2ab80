// The assembly of a tile of integer codes over the blocks of a chunk. Only vnni_tile.h includes this; it explains the
// purpose and names the operands. Why not intrinsics: docs/measurements/assembly_against_intrinsics.md.
//
// Registers: codes in zmm24-27, at a block's end scales; a broadcast in zmm28; the mask of 4 bits in zmm29; in zmm30
// the bit that distinguishes the halves of bytes. Up to three rows: y of rows 0 and 1 in zmm0-7, of row 2 in zmm20-23,
// integer sums in zmm8-19. More rows: integer sums in zmm0-23, four each, and y in memory. [i] holds an address during
// loops over rows; [k] is free between its visible uses.
#pragma once

// clang-format off
// DO for each of N rows: its address from `base`, rows `by` apart (times 1 or 4: S, T is twice that), the registers of
// its sums and of its y, the offset of y in memory.
#define TACTUS_EACH1(DO, base, by, S, T) DO("(" base ")", 8, 9, 10, 11, 0, 1, 2, 3, 0)
#define TACTUS_EACH2(DO, base, by, S, T) \
  TACTUS_EACH1(DO, base, by, S, T) DO("(" base ", " by ", " S ")", 12, 13, 14, 15, 4, 5, 6, 7, 0)
#define TACTUS_EACH3(DO, base, by, S, T) \
  TACTUS_EACH2(DO, base, by, S, T) DO("(" base ", " by ", " T ")", 16, 17, 18, 19, 20, 21, 22, 23, 0)
#define TACTUS_EACH4(DO, base, by, S, T) \
  DO("(" base ")", 0, 1, 2, 3, 0, 1, 2, 3, 0) \
  DO("(" base ", " by ", " S ")", 4, 5, 6, 7, 4, 5, 6, 7, 256) \
  DO("(" base ", " by ", " T ")", 8, 9, 10, 11, 8, 9, 10, 11, 512) \
  "lea (" base ", " by ", " T "), %[i]\n\t" \
  DO("(%[i], " by ", " S ")", 12, 13, 14, 15, 12, 13, 14, 15, 768)
#define TACTUS_EACH5(DO, base, by, S, T) \
  TACTUS_EACH4(DO, base, by, S, T) DO("(%[i], " by ", " T ")", 16, 17, 18, 19, 16, 17, 18, 19, 1024)
#define TACTUS_EACH6(DO, base, by, S, T) \
  TACTUS_EACH5(DO, base, by, S, T) \
  "lea (%[i], " by ", " T "), %[i]\n\t" DO("(%[i], " by ", " S ")", 20, 21, 22, 23, 20, 21, 22, 23, 1280)
#define TACTUS_TERMS(N, DO, base) TACTUS_EACH##N(DO, base, "%[term_stride]", "4", "8")
// An instruction for each of four registers, or of four vectors of memory.
#define TACTUS_FOUR(how, a, b, c, d) \
  how ", %%zmm" #a ", %%zmm" #a "\n\t" \
  how ", %%zmm" #b ", %%zmm" #b "\n\t" \
  how ", %%zmm" #c ", %%zmm" #c "\n\t" \
  how ", %%zmm" #d ", %%zmm" #d "\n\t"
#define TACTUS_LOAD(at, from, a, b, c, d) \
  "vmovdqa64 " at "+0" from ", %%zmm" #a "\n\t" \
  "vmovdqa64 " at "+64" from ", %%zmm" #b "\n\t" \
  "vmovdqa64 " at "+128" from ", %%zmm" #c "\n\t" \
  "vmovdqa64 " at "+192" from ", %%zmm" #d "\n\t"
#define TACTUS_STORE(at, to, a, b, c, d) \
  "vmovdqa64 %%zmm" #a ", " at "+0" to "\n\t" \
  "vmovdqa64 %%zmm" #b ", " at "+64" to "\n\t" \
  "vmovdqa64 %%zmm" #c ", " at "+128" to "\n\t" \
  "vmovdqa64 %%zmm" #d ", " at "+192" to "\n\t"

// ---- codes ----

#define TACTUS_BYTES(at) TACTUS_LOAD(#at, "(%[w])", 24, 25, 26, 27)
#define TACTUS_MASK TACTUS_FOUR("vpandd %%zmm29", 24, 25, 26, 27)
#define TACTUS_SHIFT(how, at) \
  how ", " #at "+0(%[w]), %%zmm24\n\t" \
  how ", " #at "+64(%[w]), %%zmm25\n\t" \
  how ", " #at "+128(%[w]), %%zmm26\n\t" \
  how ", " #at "+192(%[w]), %%zmm27\n\t"
#define TACTUS_LOW(at) \
  "vpandd " #at "+0(%[w]), %%zmm29, %%zmm24\n\t" \
  "vpandd " #at "+64(%[w]), %%zmm29, %%zmm25\n\t" \
  "vpandd " #at "+128(%[w]), %%zmm29, %%zmm26\n\t" \
  "vpandd " #at "+192(%[w]), %%zmm29, %%zmm27\n\t"
#define TACTUS_HIGH(at) TACTUS_SHIFT("vpsrlw $4", at) TACTUS_MASK
// Uses `free`, a register that is free at that point, for the address.
#define TACTUS_OFFSETS(free) \
  "mov %[scales], " free "\n\t" \
  "vpaddb 16384+0(" free "), %%zmm24, %%zmm24\n\t" \
  "vpaddb 16384+64(" free "), %%zmm25, %%zmm25\n\t" \
  "vpaddb 16384+128(" free "), %%zmm26, %%zmm26\n\t" \
  "vpaddb 16384+192(" free "), %%zmm27, %%zmm27\n\t"
#define TACTUS_LOW_ZEROED(at) TACTUS_SHIFT("vpsllw $2", at) TACTUS_MASK TACTUS_OFFSETS("%[i]")
#define TACTUS_HIGH_ZEROED(at) TACTUS_SHIFT("vpsrlw $2", at) TACTUS_MASK TACTUS_OFFSETS("%[i]")
// Groups of four columns, 0 to 3 of 16, and the advance after them.
#define TACTUS_BYTES0 TACTUS_BYTES(0)
#define TACTUS_BYTES1 TACTUS_BYTES(256)
#define TACTUS_BYTES2 TACTUS_BYTES(512)
#define TACTUS_BYTES3 TACTUS_BYTES(768)
#define TACTUS_BYTES_NEXT "add $1024, %[w]\n\t"
#define TACTUS_NIBBLES0 TACTUS_LOW(0)
#define TACTUS_NIBBLES1 TACTUS_HIGH(0)
#define TACTUS_NIBBLES2 TACTUS_LOW(256)
#define TACTUS_NIBBLES3 TACTUS_HIGH(256)
#define TACTUS_NIBBLES_NEXT "add $512, %[w]\n\t"
#define TACTUS_ZEROED0 TACTUS_LOW_ZEROED(0)
#define TACTUS_ZEROED1 TACTUS_HIGH_ZEROED(0)
#define TACTUS_ZEROED2 TACTUS_LOW_ZEROED(256)
#define TACTUS_ZEROED3 TACTUS_HIGH_ZEROED(256)
#define TACTUS_ZEROED_NEXT TACTUS_NIBBLES_NEXT
// Stores unpacked codes as bytes for the following tiles, or not.
#define TACTUS_KEEP(at) TACTUS_STORE(#at, "(%[kept])", 24, 25, 26, 27)
#define TACTUS_KEEP_NEXT "add $1024, %[kept]\n\t"
#define TACTUS_DROP(at)
#define TACTUS_DROP_NEXT

// ---- 16 columns ----

// Four bytes of a row times the codes.
#define TACTUS_ROW(address, a, b, c, d) \
  "vpbroadcastd " address ", %%zmm28\n\t" \
  "vpdpbusd %%zmm28, %%zmm24, %%zmm" #a "\n\t" \
  "vpdpbusd %%zmm28, %%zmm25, %%zmm" #b "\n\t" \
  "vpdpbusd %%zmm28, %%zmm26, %%zmm" #c "\n\t" \
  "vpdpbusd %%zmm28, %%zmm27, %%zmm" #d "\n\t"
#define TACTUS_ROW0(address, a, b, c, d, e, f, g, h, o) TACTUS_ROW(address, a, b, c, d)
#define TACTUS_ROW1(address, a, b, c, d, e, f, g, h, o) TACTUS_ROW("4" address, a, b, c, d)
#define TACTUS_ROW2(address, a, b, c, d, e, f, g, h, o) TACTUS_ROW("8" address, a, b, c, d)
#define TACTUS_ROW3(address, a, b, c, d, e, f, g, h, o) TACTUS_ROW("12" address, a, b, c, d)
#define TACTUS_ROWS(N, DO) TACTUS_EACH##N(DO, "%[x]", "%[x_stride]", "1", "2")
#define TACTUS_FETCH \
  "mov %[lines], %[i]\n\t" \
  "test %[i], %[i]\n\t" \
  "jz 4f\n" \
  "3:\n\t" \
  "prefetcht0 (%[ahead])\n\t" \
  "add $64, %[ahead]\n\t" \
  "dec %[i]\n\t" \
  "jnz 3b\n" \
  "4:\n\t"
#define TACTUS_STEP(CODES, LEAVE, N) \
  TACTUS_FETCH \
  TACTUS_##CODES##0 TACTUS_##LEAVE(0) TACTUS_ROWS(N, TACTUS_ROW0) \
  TACTUS_##CODES##1 TACTUS_##LEAVE(256) TACTUS_ROWS(N, TACTUS_ROW1) \
  TACTUS_##CODES##2 TACTUS_##LEAVE(512) TACTUS_ROWS(N, TACTUS_ROW2) \
  TACTUS_##CODES##3 TACTUS_##LEAVE(768) TACTUS_ROWS(N, TACTUS_ROW3) \
  TACTUS_##CODES##_NEXT TACTUS_##LEAVE##_NEXT "add $16, %[x]\n\t"

// ---- a block's start ----

// Sums start at the row's term; with wide groups, at 256 times the products of their upper bytes plus the term.
#define TACTUS_BEGIN(address, a, b, c, d, e, f, g, h, o) \
  "vpbroadcastd " address ", %%zmm" #a "\n\t" \
  "vmovdqa64 %%zmm" #a ", %%zmm" #b "\n\t" \
  "vmovdqa64 %%zmm" #a ", %%zmm" #c "\n\t" \
  "vmovdqa64 %%zmm" #a ", %%zmm" #d "\n\t"
#define TACTUS_CLEAR(address, a, b, c, d, e, f, g, h, o) \
  "vpxord %%xmm" #a ", %%xmm" #a ", %%xmm" #a "\n\t" \
  "vpxord %%xmm" #b ", %%xmm" #b ", %%xmm" #b "\n\t" \
  "vpxord %%xmm" #c ", %%xmm" #c ", %%xmm" #c "\n\t" \
  "vpxord %%xmm" #d ", %%xmm" #d ", %%xmm" #d "\n\t"
#define TACTUS_RAISE(address, a, b, c, d, e, f, g, h, o) TACTUS_FOUR("vpslld $8", a, b, c, d)
#define TACTUS_RAISE_AND_ADD(address, a, b, c, d, e, f, g, h, o) \
  TACTUS_RAISE(address, a, b, c, d, e, f, g, h, o) \
  "vpbroadcastd " address ", %%zmm28\n\t" TACTUS_FOUR("vpaddd %%zmm28", a, b, c, d)
// A wide group's codes from its first column, [k]. `at`: offset from the block's first code to the group's columns, in
// half bytes; the group's address is `place` beyond the row's. The bit that selects the half has the value 4, which is
// the shift for the upper half. (A rotation would occupy an execution slot of the dot products.)
#define TACTUS_WIDE_BYTES(address, place, at) \
  "shl $6, %[k]\n\t" TACTUS_LOAD("2*" #at "*%c[unit]", "(%[w], %[k])", 24, 25, 26, 27)
#define TACTUS_WIDE_HALVES(address, place, at) \
  "vpandd 4+" #place address "%{1to16%}, %%zmm30, %%zmm28\n\t" \
  "and $-8, %[k]\n\t" \
  "shl $5, %[k]\n\t" TACTUS_LOAD(#at "*%c[unit]", "(%[w], %[k])", 24, 25, 26, 27) \
  TACTUS_BY_COUNT(24) TACTUS_BY_COUNT(25) TACTUS_BY_COUNT(26) TACTUS_BY_COUNT(27)
#define TACTUS_BY_COUNT(a) "vpsrlvd %%zmm28, %%zmm" #a ", %%zmm" #a "\n\t"
#define TACTUS_WIDE_NIBBLES(address, place, at) TACTUS_WIDE_HALVES(address, place, at) TACTUS_MASK
#define TACTUS_WIDE_ZEROED(address, place, at) \
  TACTUS_WIDE_HALVES(address, place, at) TACTUS_FOUR("vpsllw $2", 24, 25, 26, 27) TACTUS_MASK TACTUS_OFFSETS("%[k]")
#define TACTUS_GROUP(CODES, address, place, at, a, b, c, d) \
  "mov 4+" #place address ", %k[k]\n\t" TACTUS_WIDE_##CODES(address, place, at) \
  TACTUS_ROW(#place address, a, b, c, d)
#define TACTUS_BYTES_WIDE0(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(BYTES, address, 0, 0, a, b, c, d)
#define TACTUS_BYTES_WIDE1(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(BYTES, address, 8, 1, a, b, c, d)
#define TACTUS_BYTES_WIDE2(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(BYTES, address, 16, 2, a, b, c, d)
#define TACTUS_BYTES_WIDE3(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(BYTES, address, 24, 3, a, b, c, d)
#define TACTUS_NIBBLES_WIDE0(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(NIBBLES, address, 0, 0, a, b, c, d)
#define TACTUS_NIBBLES_WIDE1(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(NIBBLES, address, 8, 1, a, b, c, d)
#define TACTUS_NIBBLES_WIDE2(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(NIBBLES, address, 16, 2, a, b, c, d)
#define TACTUS_NIBBLES_WIDE3(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(NIBBLES, address, 24, 3, a, b, c, d)
#define TACTUS_ZEROED_WIDE0(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(ZEROED, address, 0, 0, a, b, c, d)
#define TACTUS_ZEROED_WIDE1(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(ZEROED, address, 8, 1, a, b, c, d)
#define TACTUS_ZEROED_WIDE2(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(ZEROED, address, 16, 2, a, b, c, d)
#define TACTUS_ZEROED_WIDE3(address, a, b, c, d, e, f, g, h, o) TACTUS_GROUP(ZEROED, address, 24, 3, a, b, c, d)
#define TACTUS_WIDE(N, DO) TACTUS_EACH##N(DO, "%[wide]", "%[wide_stride]", "1", "2")
#define TACTUS_GROUPS1(CODES, N) TACTUS_WIDE(N, TACTUS_##CODES##_WIDE0)
#define TACTUS_GROUPS2(CODES, N) TACTUS_GROUPS1(CODES, N) TACTUS_WIDE(N, TACTUS_##CODES##_WIDE1)
#define TACTUS_GROUPS4(CODES, N) \
  TACTUS_GROUPS2(CODES, N) TACTUS_WIDE(N, TACTUS_##CODES##_WIDE2) TACTUS_WIDE(N, TACTUS_##CODES##_WIDE3)
// By the number of wide groups per block. With minima codes have no offset, and terms are 0.
#define TACTUS_START0(CODES, RAISE, N) TACTUS_TERMS(N, TACTUS_BEGIN, "%[start]")
#define TACTUS_START(CODES, RAISE, GROUPS, N) \
  TACTUS_TERMS(N, TACTUS_CLEAR, "%[start]") TACTUS_GROUPS##GROUPS(CODES, N) TACTUS_TERMS(N, RAISE, "%[start]") \
  "add $8*" #GROUPS ", %[wide]\n\t"
#define TACTUS_START1(CODES, RAISE, N) TACTUS_START(CODES, RAISE, 1, N)
#define TACTUS_START2(CODES, RAISE, N) TACTUS_START(CODES, RAISE, 2, N)
#define TACTUS_START4(CODES, RAISE, N) TACTUS_START(CODES, RAISE, 4, N)

// clang-format on
