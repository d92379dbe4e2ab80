#include "python/status_error.h"

namespace tactus::python {

namespace nb = nanobind;

nb::object ExceptionOf(const Status& status) {
  return nb::module_::import_("tactus.errors")
      .attr("error_of")(StatusCodeName(status.code()), nb::bytes(status.message().data(), status.message().size()),
                        nb::bytes(status.param().data(), status.param().size()));
}

void RegisterStatusError() {
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (const StatusError& error) {
          const nb::object made = ExceptionOf(error.status());
          PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
        }
      },
      nullptr);
}

}  // namespace tactus::python
