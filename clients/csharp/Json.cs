using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

namespace Tilefence
{
    /// <summary>JSON as dictionaries, lists, strings, doubles, booleans and null.</summary>
    internal sealed class Json
    {
        readonly string s;
        int at, depth;

        Json(string s) { this.s = s; }

        /// <summary>Reads an object; anything else is a WireException.</summary>
        internal static Dictionary<string, object> Object(string s)
        {
            var r = new Json(s);
            var o = r.Value() as Dictionary<string, object>;
            r.Space();
            if (o == null || r.at < s.Length) throw new WireException("want one JSON object");
            return o;
        }

        /// <summary>A value of a type, or a default.</summary>
        internal static T Get<T>(Dictionary<string, object> o, string name, T otherwise)
        {
            object v;
            return o != null && o.TryGetValue(name, out v) && v is T ? (T)v : otherwise;
        }

        /// <summary>A text in quotes.</summary>
        internal static string Quote(string text)
        {
            var b = new StringBuilder("\"");
            foreach (char c in text)
                if (c == '"' || c == '\\') b.Append('\\').Append(c);
                else if (c < ' ') b.Append("\\u").Append(((int)c).ToString("x4"));
                else b.Append(c);
            return b.Append('"').ToString();
        }

        void Space() { while (at < s.Length && " \t\r\n".IndexOf(s[at]) >= 0) at++; }

        bool Has(char c)
        {
            Space();
            if (at >= s.Length || s[at] != c) return false;
            at++;
            return true;
        }

        void Want(char c) { if (!Has(c)) throw new WireException("want " + c + " at " + at + " of the JSON"); }

        object Value()
        {
            if (++depth > 64) throw new WireException("JSON too deep");
            object v = Has('{') ? Members() : Has('[') ? Elements() : Has('"') ? Text() : Word();
            depth--;
            return v;
        }

        object Members()
        {
            var o = new Dictionary<string, object>();
            if (Has('}')) return o;
            do
            {
                Want('"');
                string name = Text();
                Want(':');
                o[name] = Value();
            } while (Has(','));
            Want('}');
            return o;
        }

        object Elements()
        {
            var l = new List<object>();
            if (Has(']')) return l;
            do l.Add(Value()); while (Has(','));
            Want(']');
            return l;
        }

        string Text()
        {
            var b = new StringBuilder();
            for (; ; at++)
            {
                if (at >= s.Length) throw new WireException("JSON cut short");
                char c = s[at];
                if (c == '"') { at++; return b.ToString(); }
                if (c != '\\') { b.Append(c); continue; }
                if (++at >= s.Length) throw new WireException("JSON cut short");
                int i = "nrtbf".IndexOf(s[at]);
                ushort code;
                if (s[at] != 'u') b.Append(i < 0 ? s[at] : "\n\r\t\b\f"[i]);
                else if (at + 4 < s.Length && ushort.TryParse(s.Substring(at + 1, 4), NumberStyles.AllowHexSpecifier,
                    CultureInfo.InvariantCulture, out code)) { b.Append((char)code); at += 4; }
                else throw new WireException("JSON escape");
            }
        }

        object Word()
        {
            int start = at;
            while (at < s.Length && ",]} \t\r\n".IndexOf(s[at]) < 0) at++;
            string w = s.Substring(start, at - start);
            double n;
            if (w == "null") return null;
            if (w == "true" || w == "false") return w == "true";
            if (!double.TryParse(w, NumberStyles.Float, CultureInfo.InvariantCulture, out n)) throw new WireException("JSON " + w);
            return n;
        }
    }
}
