// Where this program is on the disk.
#pragma once

#include <string>

namespace tactus {

// The folder of the program or shared library that contains this code; empty: unknown.
std::string OwnFolder();

}  // namespace tactus
