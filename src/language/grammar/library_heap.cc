#include "language/grammar/library_heap.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace tactus::language {
namespace {

thread_local int64_t* charged = nullptr;  // null: not counting

ReserveHeap* reserve = nullptr;  // set before the library runs on other threads

bool IsReserved(const void* block) {
  return reserve != nullptr && reserve->Owns(block);
}

size_t SizeOf(void* block) {
  return IsReserved(block) ? reserve->SizeOf(block) : malloc_usable_size(block);
}

void CountBlock(void* block, int sign) {
  if (charged != nullptr && block != nullptr) *charged += sign * static_cast<int64_t>(SizeOf(block));
}

void* OrReserved(void* block, size_t size, size_t alignment = ReserveHeap::kAlignment) {
  return block != nullptr || reserve == nullptr ? block : reserve->Allocate(size, alignment);
}

void* CountedMalloc(size_t size) {
  void* const block = OrReserved(std::malloc(size), size);
  CountBlock(block, 1);
  return block;
}

void* CountedCalloc(size_t count, size_t size) {
  void* block = std::calloc(count, size);
  if (block == nullptr && reserve != nullptr && (size == 0 || count <= SIZE_MAX / size)) {
    block = reserve->Allocate(count * size);
    if (block != nullptr) std::memset(block, 0, count * size);
  }
  CountBlock(block, 1);
  return block;
}

void FreeBlock(void* block) {
  if (IsReserved(block)) {
    reserve->Free(block);
  } else {
    std::free(block);
  }
}

void* CountedRealloc(void* old, size_t size) {
  const auto before = old != nullptr ? static_cast<int64_t>(SizeOf(old)) : 0;
  void* block = IsReserved(old) ? std::malloc(size) : std::realloc(old, size);
  const bool moves = IsReserved(old) || (block == nullptr && size > 0);  // realloc has not moved it
  if (moves) {
    block = OrReserved(block, size);
    if (block != nullptr && old != nullptr) {
      std::memcpy(block, old, std::min(size, static_cast<size_t>(before)));
      FreeBlock(old);
    }
  }
  if (charged != nullptr && (block != nullptr || size == 0)) *charged -= before;
  CountBlock(block, 1);
  return block;
}

int CountedPosixMemalign(void** block, size_t alignment, size_t size) {
  int error = posix_memalign(block, alignment, size);
  if (error == ENOMEM) {
    *block = OrReserved(nullptr, size, alignment);
    if (*block != nullptr) error = 0;
  }
  if (error == 0) CountBlock(*block, 1);
  return error;
}

void CountedFree(void* block) {
  CountBlock(block, -1);
  FreeBlock(block);
}

struct Wrapped {
  const char* name;
  void* function;
};

const Wrapped* FindWrapped(std::string_view name) {
  static const Wrapped kAll[] = {{"malloc", reinterpret_cast<void*>(&CountedMalloc)},
                                 {"calloc", reinterpret_cast<void*>(&CountedCalloc)},
                                 {"realloc", reinterpret_cast<void*>(&CountedRealloc)},
                                 {"posix_memalign", reinterpret_cast<void*>(&CountedPosixMemalign)},
                                 {"free", reinterpret_cast<void*>(&CountedFree)}};
  for (const Wrapped& wrapped : kAll) {
    if (name == wrapped.name) return &wrapped;
  }
  return nullptr;
}

// The parts of a library's dynamic section that list which of its words hold addresses of external functions.
struct Dynamic {
  const char* strings = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  const ElfW(Rela) * tables[2] = {nullptr, nullptr};  // of data and of calls
  size_t counts[2] = {0, 0};
  bool has_addends = true;
};

Dynamic DynamicOf(const link_map& library) {
  Dynamic d;
  const auto address = [&](const ElfW(Dyn) & entry) { return entry.d_un.d_ptr; };  // made absolute by the loader
  for (const ElfW(Dyn)* entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_STRTAB:
        d.strings = reinterpret_cast<const char*>(address(*entry));
        break;
      case DT_SYMTAB:
        d.symbols = reinterpret_cast<const ElfW(Sym)*>(address(*entry));
        break;
      case DT_RELA:
        d.tables[0] = reinterpret_cast<const ElfW(Rela)*>(address(*entry));
        break;
      case DT_RELASZ:
        d.counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_JMPREL:
        d.tables[1] = reinterpret_cast<const ElfW(Rela)*>(address(*entry));
        break;
      case DT_PLTRELSZ:
        d.counts[1] = entry->d_un.d_val / sizeof(ElfW(Rela));
        break;
      case DT_PLTREL:
        d.has_addends = entry->d_un.d_val == DT_RELA;
        break;
      default:
        break;
    }
  }
  return d;
}

// The region that the loader made read-only after writing all addresses.
struct ReadOnly {
  uintptr_t base = 0, begin = 0, end = 0;
};

int FindReadOnly(dl_phdr_info* info, size_t, void* found) {
  auto* const read_only = static_cast<ReadOnly*>(found);
  if (info->dlpi_addr != read_only->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_GNU_RELRO) continue;
    read_only->begin = info->dlpi_addr + header.p_vaddr;
    read_only->end = read_only->begin + header.p_memsz;
  }
  return 1;
}

bool WriteWord(void** word, void* value, const ReadOnly& read_only) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto place = reinterpret_cast<uintptr_t>(word);
  if (place < read_only.begin || place >= read_only.end) {
    *word = value;
    return true;
  }
  void* const page = reinterpret_cast<void*>(place & ~(page_bytes - 1));
  if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  *word = value;
  return mprotect(page, page_bytes, PROT_READ) == 0;
}

}  // namespace

bool CountHeapOf(const void* function, ReserveHeap* of_library) {
  Dl_info info;
  link_map* library = nullptr;
  if (dladdr1(function, &info, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) == 0 || library == nullptr)
    return false;
  const Dynamic d = DynamicOf(*library);
  if (d.strings == nullptr || d.symbols == nullptr || !d.has_addends) return false;
  reserve = of_library;
  ReadOnly read_only;
  read_only.base = library->l_addr;
  dl_iterate_phdr(&FindReadOnly, &read_only);
  int found = 0;
  for (int table = 0; table < 2; ++table) {
    for (size_t i = 0; d.tables[table] != nullptr && i < d.counts[table]; ++i) {
      const ElfW(Rela)& entry = d.tables[table][i];
      const size_t symbol = ELF64_R_SYM(entry.r_info);
      if (symbol == 0) continue;
      const Wrapped* const wrapped = FindWrapped(d.strings + d.symbols[symbol].st_name);
      if (wrapped == nullptr) continue;
      if (!WriteWord(reinterpret_cast<void**>(library->l_addr + entry.r_offset), wrapped->function, read_only))
        return false;
      ++found;
    }
  }
  return found >= 3;  // malloc, realloc and free at least
}

bool HeapIsShort() {
  return reserve != nullptr && reserve->used() > reserve->size() / 4;
}

bool HeapHas(size_t bytes) {
  if (reserve != nullptr && reserve->used() > 0) return false;
  void* volatile block = std::malloc(bytes);  // volatile: the compiler may remove an unused block
  std::free(block);
  return block != nullptr;
}

HeapCharge::HeapCharge(int64_t* bytes) : outer_(charged) {
  charged = bytes;
}

HeapCharge::~HeapCharge() {
  charged = outer_;
}

}  // namespace tactus::language
