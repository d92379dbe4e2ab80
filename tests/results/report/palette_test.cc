// The colours of charts: readers with and without colour-blindness can distinguish any two, and each contrasts with the
// paper, light and dark. Colour-blind vision by the matrices of Machado, Oliveira and Fernandes (2009) at full
// severity, differences as distances in CIE L*a*b*, contrast as in WCAG 2.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "results/report/chart.h"

namespace tactus::results {
namespace {

using Colour = std::array<double, 3>;  // linear red, green, blue

Colour Parsed(const std::string& css, const std::string& rule, size_t from) {
  const size_t at = css.find(rule, from);
  EXPECT_NE(at, std::string::npos) << rule;
  Colour colour{};
  for (size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(css.substr(at + rule.size() + 2 * i, 2), nullptr, 16) / 255.0;
    colour[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  return colour;
}

double Luminance(const Colour& c) {
  return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
}

double Contrast(const Colour& a, const Colour& b) {
  const double x = Luminance(a) + 0.05, y = Luminance(b) + 0.05;
  return std::max(x, y) / std::min(x, y);
}

using Sight = std::array<std::array<double, 3>, 3>;
constexpr Sight kSights[] = {
    {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
    {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}},  // protan
    {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}},   // deutan
    {{{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}}},  // tritan
};

std::array<double, 3> Lab(const Colour& c, const Sight& sight) {
  Colour seen{};
  for (size_t i = 0; i < 3; ++i)
    seen[i] = std::clamp(sight[i][0] * c[0] + sight[i][1] * c[1] + sight[i][2] * c[2], 0.0, 1.0);
  const auto f = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116; };
  const double x = f((0.4124 * seen[0] + 0.3576 * seen[1] + 0.1805 * seen[2]) / 0.95047), y = f(Luminance(seen)),
               z = f((0.0193 * seen[0] + 0.1192 * seen[1] + 0.9505 * seen[2]) / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

double Difference(const Colour& a, const Colour& b, const Sight& sight) {
  const auto p = Lab(a, sight), q = Lab(b, sight);
  return std::sqrt(std::pow(p[0] - q[0], 2) + std::pow(p[1] - q[1], 2) + std::pow(p[2] - q[2], 2));
}

void ExpectTellable(const std::string& css, size_t from) {
  constexpr double kLeastDifference = 15, kLeastContrast = 3;
  const Colour paper = Parsed(css, ".chart .paper{fill:#", from);
  std::vector<Colour> colours;
  for (size_t i = 0; i < kNumColours; ++i) {
    const std::string name = std::to_string(i);
    colours.push_back(Parsed(css, ".chart .s" + name + "{stroke:#", from));
    EXPECT_EQ(colours.back(), Parsed(css, ".chart .f" + name + "{fill:#", from));
    EXPECT_GE(Contrast(colours.back(), paper), kLeastContrast) << "colour " << i;
  }
  for (size_t sight = 0; sight < std::size(kSights); ++sight) {
    for (size_t i = 0; i < colours.size(); ++i) {
      for (size_t k = 0; k < i; ++k)
        EXPECT_GE(Difference(colours[i], colours[k], kSights[sight]), kLeastDifference)
            << "colours " << k << " and " << i << " to sight " << sight;
    }
  }
}

TEST(PaletteTest, LightColoursAreDistinguishable) {
  ExpectTellable(ChartCss(), 0);
}

TEST(PaletteTest, DarkColoursAreDistinguishable) {
  const std::string css = ChartCss();
  const size_t dark = css.find("@media screen and (prefers-color-scheme:dark){");
  ASSERT_NE(dark, std::string::npos) << "browsers do not know '(not print)', so it never applies";
  ExpectTellable(css, dark);
}

}  // namespace
}  // namespace tactus::results
