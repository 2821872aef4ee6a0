// SPDX-License-Identifier: Apache-2.0
#include "tuner/report/svg.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "core/strings.h"
#include "tuner/report/style.h"

namespace kvr::report {
namespace {

// `css` with the palette's light colours as plain values: a picture that is a file is opened by
// viewers that know no variables, and paint black for each.
std::string OnWhite(std::string_view css) {
  const std::string_view light = kPalette.substr(0, kPalette.find("@media"));
  std::string plain;
  for (size_t at; (at = css.find("var(")) != css.npos;) {
    const size_t end = css.find(')', at);
    const std::string name(css.substr(at + 4, end - at - 4));
    const size_t value = light.find('#', light.find(name + ":"));
    plain += css.substr(0, at);
    plain += light.substr(value, light.find(';', value) - value);
    css.remove_prefix(end + 1);
  }
  return plain.append(css);
}

constexpr double kCharacter = 7.3;  // width of one in a label, about

size_t Characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// The bytes of `count` characters from the front.
size_t Bytes(std::string_view text, size_t count) {
  size_t at = 0;
  for (; at < text.size() && count > 0; --count) {
    do ++at;
    while (at < text.size() && (text[at] & 0xc0) == 0x80);
  }
  return at;
}

}  // namespace

std::string Escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Scale::Scale(double low, double high, double from, double to, bool log)
    : low_(log ? std::log(low) : low), from_(from), to_(to), log_(log) {
  const double top = log ? std::log(high) : high;
  span_ = top > low_ ? top - low_ : 1;
}

double Scale::operator()(double value) const {
  const double v = log_ ? std::log(value) : value;
  return from_ + (v - low_) / span_ * (to_ - from_);
}

std::vector<double> Ticks(double low, double high) {
  const double span = high > low ? high - low : 1;
  double step = std::pow(10, std::floor(std::log10(span / 4)));
  if (span / step > 16) {
    step *= 5;
  } else if (span / step > 8) {
    step *= 2;
  }
  std::vector<double> ticks;
  for (double tick = std::ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) {
    ticks.push_back(std::abs(tick) < step * 1e-9 ? 0 : tick);
  }
  return ticks;
}

std::vector<double> LogTicks(double low, double high) {
  std::vector<double> ticks;
  for (double decade = std::pow(10, std::floor(std::log10(low))); decade <= high; decade *= 10) {
    for (double digit : {1.0, 2.0, 5.0}) {
      const double tick = digit * decade;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::vector<double> Spaced(std::vector<double> values, const Scale& at, double apart) {
  std::sort(values.rbegin(), values.rend());
  std::vector<double> kept;
  for (double value : values) {
    if (kept.empty() || std::abs(at(kept.back()) - at(value)) >= apart) kept.push_back(value);
  }
  return kept;
}

double TextWidth(std::string_view text) {
  return kCharacter * static_cast<double>(Characters(text));
}

std::string Open(double height, std::string_view label) {
  return absl::StrFormat("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n",
                         kPlotWidth, height, Escaped(label));
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view css) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n",
                         x1, y1, x2, y2, std::string(css));
}

std::string Text(double x, double y, std::string_view text, std::string_view css) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s</text>\n", x, y,
                         std::string(css), Escaped(text));
}

std::string Label(double x, double y, double width, std::string_view text, std::string_view css) {
  const size_t count = Characters(text), most = static_cast<size_t>(width / kCharacter);
  if (count <= most) return Text(x, y, text, css);
  // Names end in what tells them apart at least as often as they begin with it.
  const size_t head = (most - 1) / 2, tail = most - 1 - head;
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">%s<title>%s</title></text>\n", x,
                         y, std::string(css),
                         Escaped(StrCat(text.substr(0, Bytes(text, head)), "…",
                                        text.substr(Bytes(text, count - tail)))),
                         Escaped(text));
}

std::string Dot(double x, double y, double r, std::string_view css, std::string_view title) {
  return absl::StrFormat(
      "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"><title>%s</title></circle>\n", x, y,
      r, std::string(css), Escaped(title));
}

std::string Arrow(double x, double y, int dx, int dy, std::string_view css,
                  std::string_view title) {
  constexpr double kLength = 7, kHalf = 4.5;
  const double back_x = x - kLength * dx, back_y = y - kLength * dy;
  return absl::StrFormat(
      "<path d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fz\" class=\"%s\"><title>%s</title></path>\n", x, y,
      back_x + kHalf * dy, back_y + kHalf * dx, back_x - kHalf * dy, back_y - kHalf * dx,
      std::string(css), Escaped(title));
}

std::string Rect(double x1, double y, double x2, double height, std::string_view css) {
  return absl::StrFormat(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"/>\n", x1, y,
      std::max(0.0, x2 - x1), height, std::string(css));
}

namespace {

constexpr std::string_view kFloorName = "the least that memory allows";

}  // namespace

std::string Legend(const std::vector<std::string>& names, bool floor) {
  std::string out = "<div class=\"keys\">";
  for (size_t i = 0; i < names.size(); ++i) {
    StrAppend(&out, "<span><i class=\"k", i % kSeriesColours, "\"></i>", Escaped(names[i]),
              "</span> ");
  }
  if (floor) out += "<span><i class=\"kf\"></i>" + std::string(kFloorName) + "</span>";
  return out + "</div>\n";
}

std::string Picture(std::string_view title, double height, std::string_view marks,
                    const std::vector<std::string>& names, bool floor) {
  constexpr double kTitle = 26, kRow = 18, kLeft = 12, kKey = 16, kGap = 18;
  std::string legend;
  double x = kLeft, y = kTitle + height + kRow - 6;
  const auto place = [&](std::string_view name) {  // where its key begins
    const double wide = kKey + TextWidth(name) + kGap;
    if (x > kLeft && x + wide > kRight) {
      x = kLeft;
      y += kRow;
    }
    legend += Text(x + kKey, y, name, "t");
    x += wide;
    return x - wide;
  };
  for (size_t i = 0; i < names.size(); ++i) {
    const double at = place(names[i]);
    legend += Rect(at, y - 9, at + 10, 10, StrCat("f", i % kSeriesColours));
  }
  if (floor) {
    const double at = place(kFloorName);
    legend += Line(at - 2, y - 4, at + 12, y - 4, "floor");
  }
  const double whole = y + 8;
  return StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                      "role=\"img\">\n<title>%s</title>\n<style>\n",
                      kPlotWidth, whole, Escaped(title)),
      OnWhite(kPictureStyle), "</style>\n",
      absl::StrFormat("<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", kPlotWidth, whole),
      Text(kLeft, kTitle - 8, title, "l"),
      absl::StrFormat("<g transform=\"translate(0 %.0f)\">\n", kTitle), marks, "</g>\n", legend,
      "</svg>\n");
}

}  // namespace kvr::report
