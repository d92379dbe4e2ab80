#include "python/calls.h"

#include <pthread.h>
#include <unistd.h>

#include <thread>

#include "python/engine_handle.h"

namespace tactus::python {

namespace nb = nanobind;

namespace {

constexpr std::chrono::milliseconds kPoll{2};

std::atomic<bool> calls_end = false;   // EndCalls has begun
std::atomic<bool> calls_over = false;  // threads without the GIL must not return to Python
std::atomic<int> calls_inside = 0;     // running calls
std::atomic<int> calls_here = 0;       // of those, with the GIL or waiting for it
thread_local int calls_of_thread = 0;
PyObject* refusal_class = nullptr;  // per process; never freed

// Must not run Python code (constructor or finaliser), because the call is not counted.
[[noreturn]] void Refuse() {
  const bool collects = PyGC_Disable() != 0;
  const char* const text = "the interpreter is shutting down: no further calls of tactus";
  auto* type = reinterpret_cast<PyTypeObject*>(refusal_class);
  {
    const nb::object args = nb::make_tuple(nb::str(text));
    const nb::object error = nb::steal(type->tp_new(type, args.ptr(), nullptr));
    if (error.is_valid()) {
      PyObject_SetAttrString(error.ptr(), "message", args[0].ptr());
      PyObject_SetAttrString(error.ptr(), "param", nb::str("").ptr());
      PyErr_SetObject(refusal_class, error.ptr());
    }
  }
  if (collects) PyGC_Enable();
  throw nb::python_error();
}

[[noreturn]] void StayAway() {
  while (true) pause();
}

void ForgetOtherThreads() {
  calls_inside = calls_here = calls_of_thread;
}

}  // namespace

Call::Call() {
  if (calls_end) Refuse();
  ++calls_inside;
  ++calls_here;
  ++calls_of_thread;
}

Call::~Call() {
  --calls_of_thread;
  --calls_here;
  --calls_inside;
}

WithoutGil::WithoutGil() : state_(PyEval_SaveThread()) {
  --calls_here;
}

WithoutGil::~WithoutGil() {
  ++calls_here;  // before the check: EndCalls waits for threads that passed it
  if (calls_over) {
    --calls_here;
    StayAway();
  }
  PyEval_RestoreThread(state_);
}

const std::atomic<bool>& CallsEnd() {
  return calls_end;
}

int CallsUnderWay() {
  return calls_inside;
}

void BeginCalls(nb::handle refusal) {
  refusal_class = refusal.inc_ref().ptr();
  pthread_atfork(nullptr, nullptr, ForgetOtherThreads);
}

void EndCalls() {
  calls_end = true;
  bool waits = true;
  PyThreadState* state = PyEval_SaveThread();
  CloseEngines();
  for (int polls = 1; waits && calls_inside > 0; ++polls) {
    std::this_thread::sleep_for(kPoll);
    if (polls % (kLook / kPoll) != 0) continue;
    PyEval_RestoreThread(state);
    if (PyErr_CheckSignals() != 0) {
      PyErr_Clear();
      waits = false;
    }
    state = PyEval_SaveThread();
  }
  calls_over = true;
  while (calls_here > 0) std::this_thread::sleep_for(kPoll);
  PyEval_RestoreThread(state);
}

}  // namespace tactus::python
