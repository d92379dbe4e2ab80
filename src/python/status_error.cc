#include "python/status_error.h"

namespace tactus::python {

namespace nb = nanobind;

nb::object ExceptionOf(const Status& status) {
  return nb::module_::import_("tactus.errors")
      .attr("error_of")(StatusCodeName(status.code()), nb::bytes(status.message().data(), status.message().size()),
                        nb::bytes(status.param().data(), status.param().size()));
}

void Raise(const Status& status) {
  {
    const nb::object error = ExceptionOf(status);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  }
  throw nb::python_error();
}

}  // namespace tactus::python
